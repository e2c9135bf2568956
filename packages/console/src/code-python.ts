import { type CallLoop, callLoopOf, knownFields, overHttp, withListedInput } from "./code-request.ts";
import { type Form, filesIn, written } from "./code-values.ts";
import type { Transport } from "./sending.ts";

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
export function python(body: Record<string, unknown>, transport: Transport, baseUrl: string): string {
  const loop = callLoopOf(body, transport);
  const lines = [
    `# ask.py: pip install ${transport === "socket" ? "'openai[realtime]'" : "openai"} && python ask.py`,
    ...(filesIn(body) ? ["import base64"] : []),
    ...(loop ? ["import json"] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${JSON.stringify(baseUrl)})  # reads OPENAI_API_KEY`,
    ...(filesIn(body) ? DATA_URL : []),
    ...(loop ? withCalls(loop, body, transport) : ["", ...oneRequest(body, transport)]),
  ];
  return lines.join("\n");
}

const DATA_URL = [
  "",
  "",
  "def data_url(path, mime_type):",
  '    with open(path, "rb") as file:',
  '        return f"data:{mime_type};base64,{base64.b64encode(file.read()).decode()}"',
  "",
];

function oneRequest(body: Record<string, unknown>, transport: Transport): string[] {
  if (transport === "socket") {
    return [
      "with client.responses.connect() as connection:",
      `    connection.send(${written({ type: "response.create", ...body }, FORM, 1)})`,
      "    for event in connection:",
      '        if event.type == "response.output_text.delta":',
      '            print(event.delta, end="", flush=True)',
      '        elif event.type in ("response.completed", "response.failed", "response.incomplete", "error"):',
      "            break",
    ];
  }
  const fields = Object.entries(overHttp(knownToPython(body), transport)).map(
    ([name, value]) => `    ${name}=${written(value, FORM, 1)},`,
  );
  if (transport === "whole") {
    return ["response = client.responses.create(", ...fields, ")", "print(response.output_text)"];
  }
  return [
    "for event in client.responses.create(",
    ...fields,
    "):",
    '    if event.type == "response.output_text.delta":',
    '        print(event.delta, end="", flush=True)',
  ];
}

/** The request again and again, with the results of the functions that it calls, until there is a final text. */
function withCalls(loop: CallLoop, body: Record<string, unknown>, transport: Transport): string[] {
  const begun = loop.keptBy === "input" ? withListedInput(body) : body;
  const isSocket = transport === "socket";
  const request = isSocket ? { type: "response.create", ...begun } : overHttp(knownToPython(begun), transport);
  const indent = isSocket ? "    " : "";
  const rounds = [
    "while True:",
    `    response = ${transport === "whole" ? "client.responses.create(**request)" : isSocket ? "send(connection)" : "send()"}`,
    '    calls = [item for item in response.output if item.type == "function_call"]',
    "    outputs = [",
    "        {",
    '            "type": "function_call_output",',
    '            "call_id": call.call_id,',
    '            "output": call_function(call.name, json.loads(call.arguments)),',
    "        }",
    "        for call in calls",
    "    ]",
    "    if not outputs:",
    "        break",
    ...(loop.keptBy === "previous_response_id" ? ['    request["previous_response_id"] = response.id'] : []),
    loop.keptBy === "input" ? '    request["input"] += response.output + outputs' : '    request["input"] = outputs',
    ...(loop.isForced ? ['    request["tool_choice"] = "auto"'] : []),
  ];
  return [
    ...["", ""],
    "def call_function(name, arguments):",
    '    """Gives the result of a function that the model calls, as text. Your code goes here."""',
    ...loop.functions.flatMap(({ name, parameters }) => [
      `    if name == ${JSON.stringify(name)}:${parameters.length > 0 ? `  # arguments: ${parameters.join(", ")}` : ""}`,
      `        return f"${name} is not written yet. It was called with {arguments}."`,
    ]),
    '    raise ValueError(f"There is no function {name}.")',
    ...["", ""],
    `request = ${written(request, FORM)}`,
    ...(transport === "whole" ? [] : sending(isSocket)),
    "",
    ...(isSocket ? ["with client.responses.connect() as connection:"] : []),
    ...rounds.map((line) => indent + line),
    ...(transport === "whole" ? ["print(response.output_text)"] : []),
  ];
}

/** A function that prints the text of an answer while it comes. */
function sending(isSocket: boolean): string[] {
  return [
    ...["", ""],
    `def send(${isSocket ? "connection" : ""}):`,
    '    """Prints the answer\'s text as it comes. Gives the response when it has ended."""',
    ...(isSocket ? ["    connection.send(request)"] : []),
    `    for event in ${isSocket ? "connection" : "client.responses.create(**request)"}:`,
    '        if event.type == "response.output_text.delta":',
    '            print(event.delta, end="", flush=True)',
    '        elif event.type in ("response.completed", "response.failed", "response.incomplete"):',
    "            return event.response",
    ...(isSocket ? ['        elif event.type == "error":', "            raise RuntimeError(event.message)"] : []),
    "",
  ];
}

function knownToPython(body: Record<string, unknown>): Record<string, unknown> {
  const { known, others } = knownFields(body);
  return { ...known, ...(others && { extra_body: others }) };
}
