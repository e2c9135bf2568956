import { type CallLoop, type Request, withOthers } from "./code-request.ts";
import { type Form, filesIn, written } from "./code-values.ts";

const FORM: Form = {
  // JSON's escapes are Python's, too.
  string: (text) => JSON.stringify(text),
  file: ({ name, type }) => `data_url(${JSON.stringify(name)}, ${JSON.stringify(type)})`,
  key: (name) => JSON.stringify(name),
  words: { true: "True", false: "False", null: "None" },
  indent: "    ",
  space: "",
};

/** A request as a Python program. */
export function python(request: Request): string {
  const { body, transport, baseUrl, loop } = request;
  return `# ask.py: pip install ${transport === "socket" ? "'openai[realtime]'" : "openai"} && python ask.py
${filesIn(body) ? "import base64\n" : ""}${loop ? "import json\n" : ""}from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(baseUrl)})  # reads OPENAI_API_KEY
${filesIn(body) ? DATA_URL : ""}${loop ? withCalls(loop, request) : `\n${oneRequest(request)}`}`;
}

const DATA_URL = `

def data_url(path, mime_type):
    with open(path, "rb") as file:
        return f"data:{mime_type};base64,{base64.b64encode(file.read()).decode()}"

`;

function fieldsOf(request: Request) {
  return withOthers(request, (others) => ({ extra_body: others }));
}

function oneRequest(request: Request): string {
  if (request.transport === "socket") {
    return `with client.responses.connect() as connection:
    connection.send(${written({ type: "response.create", ...request.body }, FORM, 1)})
    for event in connection:
        if event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
        elif event.type in ("response.completed", "response.failed", "response.incomplete", "error"):
            break`;
  }
  const fields = Object.entries(fieldsOf(request)).map(([name, value]) => `    ${name}=${written(value, FORM, 1)},\n`);
  const create = `client.responses.create(\n${fields.join("")})`;
  if (request.transport === "whole") return `response = ${create}\nprint(response.output_text)`;
  return `for event in ${create}:
    if event.type == "response.output_text.delta":
        print(event.delta, end="", flush=True)`;
}

/** The request again and again, with the results of the functions that it calls, until there is a final text. */
function withCalls({ functions, keptBy, isForced }: CallLoop, request: Request): string {
  const cases = functions.map(
    ({ name, parameters }) => `    if name == ${JSON.stringify(name)}:${parameters && `  # arguments: ${parameters}`}
        return f"${name} is not written yet. It was called with {arguments}."
`,
  );
  return `

def call_function(name, arguments):
    """Gives the result of a function that the model calls, as text. Your code goes here."""
${cases.join("")}    raise ValueError(f"There is no function {name}.")


request = ${written(fieldsOf(request), FORM)}

while True:
    response = client.responses.create(**request)
    calls = [item for item in response.output if item.type == "function_call"]
    outputs = [
        {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": call_function(call.name, json.loads(call.arguments)),
        }
        for call in calls
    ]
    if not outputs:
        break
${keptBy === "previous_response_id" ? '    request["previous_response_id"] = response.id\n' : ""}    request["input"] ${keptBy === "input" ? "+= response.output + outputs" : "= outputs"}
${isForced ? '    request["tool_choice"] = "auto"\n' : ""}print(response.output_text)`;
}
