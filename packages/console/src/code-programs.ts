import { type Request, type Syntax, written } from "./code-values.ts";

/** A request as a program in Python, TypeScript or Go. */

/** Lines of code, without those that a program does not have. */
function lines(...all: (string | false)[]): string {
  return all.filter((line) => line !== false).join("\n");
}

/** Fields that OpenAI's Python package knows. A program gives it the others apart. */
const KNOWN = new Set(
  "background conversation include input instructions max_output_tokens max_tool_calls metadata model parallel_tool_calls previous_response_id prompt_cache_key reasoning service_tier store stream temperature text tool_choice tools top_logprobs top_p truncation type user".split(
    " ",
  ),
);

const PYTHON: Syntax = {
  file: ({ name, type }) => `data_url(${JSON.stringify(name)}, ${JSON.stringify(type)})`,
  words: ["True", "False", "None"],
  indent: "    ",
};

export function python({ body, kind, baseUrl, hasFiles, functions, repeats, isForced }: Request): string {
  const isSocket = kind === "socket";
  const isKnown = ([name]: [string, unknown]) => isSocket || KNOWN.has(name);
  const others = Object.entries(body).filter((field) => !isKnown(field));
  const fields = {
    ...Object.fromEntries(Object.entries(body).filter(isKnown)),
    ...(others.length > 0 && { extra_body: Object.fromEntries(others) }),
  };
  const asks = {
    whole: `response = client.responses.create(**request)
print(response.output_text)`,
    stream: `for event in client.responses.create(**request):
    if event.type == "response.output_text.delta":
        print(event.delta, end="", flush=True)`,
    socket: `with client.responses.connect() as connection:
    connection.send({"type": "response.create", **request})
    for event in connection:
        if event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
        elif event.type in ("response.completed", "response.failed", "response.incomplete", "error"):
            break`,
    calls: lines(
      `while True:
    response = client.responses.create(**request)
    outputs = []
    for item in response.output:
        if item.type == "function_call":
            output = call_function(item.name, json.loads(item.arguments))
            outputs.append({"type": "function_call_output", "call_id": item.call_id, "output": output})
    if not outputs:
        break
    request["input"] ${repeats ? "+= response.output + outputs" : "= outputs"}`,
      isForced && '    request["tool_choice"] = "auto"',
      "print(response.output_text)",
    ),
  };
  return lines(
    `# ask.py: pip install ${isSocket ? "'openai[realtime]'" : "openai"} && python ask.py`,
    hasFiles && "import base64",
    functions.length > 0 && "import json",
    `from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(baseUrl)})  # reads OPENAI_API_KEY
`,
    hasFiles &&
      `
def data_url(path, mime_type):
    with open(path, "rb") as file:
        return f"data:{mime_type};base64,{base64.b64encode(file.read()).decode()}"

`,
    functions.length > 0 &&
      `
def call_function(name, arguments):
    """Gives the result of a function that the model calls, as text. Your code goes here."""`,
    ...functions.map(
      ({ name, parameters }) => `    if name == ${JSON.stringify(name)}:${parameters && `  # arguments: ${parameters}`}
        return f"${name} is not written yet. It was called with {arguments}."`,
    ),
    functions.length > 0 && '    raise ValueError(f"There is no function {name}.")\n\n',
    `request = ${written(fields, PYTHON)}
${asks[kind]}`,
  );
}

const TYPESCRIPT: Syntax = {
  file: ({ name, type }) => `\`data:${type};base64,\${readFileSync(${JSON.stringify(name)}, "base64")}\``,
  key: (name) => (/^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name)),
  space: " ",
};

/** `.mts`: an ES module, which Node runs, in a folder of any kind. The types of OpenAI's package lack some fields. */
export function typescript({ body, kind, baseUrl, hasFiles, functions, repeats, isForced }: Request): string {
  const isSocket = kind === "socket";
  const type = kind === "stream" ? "ResponseCreateParamsStreaming" : "ResponseCreateParamsNonStreaming";
  const asks = {
    whole: `const response = await client.responses.create(request);
console.log(response.output_text);`,
    stream: `for await (const event of await client.responses.create(request)) {
  if (event.type === "response.output_text.delta") process.stdout.write(event.delta);
}`,
    socket: `const socket = new ResponsesWS(client);
socket.on("response.output_text.delta", ({ delta }) => process.stdout.write(delta));
for (const end of ["response.completed", "response.failed", "response.incomplete"] as const) socket.on(end, () => socket.close());
socket.send({ type: "response.create", ...request });`,
    calls: lines(
      `for (;;) {
  const response = await client.responses.create(request);
  const outputs: Input = [];
  for (const item of response.output) {
    if (item.type !== "function_call") continue;
    const output = await callFunction(item.name, JSON.parse(item.arguments));
    outputs.push({ type: "function_call_output", call_id: item.call_id, output });
  }
  if (outputs.length === 0) {
    console.log(response.output_text);
    break;
  }`,
      repeats
        ? "  request.input = [...(request.input as Input), ...(response.output as Input), ...outputs];"
        : "  request.input = outputs;",
      isForced && '  request.tool_choice = "auto";',
      "}",
    ),
  };
  return lines(
    `// ask.mts: npm install openai${isSocket ? " ws" : ""} && node ask.mts`,
    hasFiles && 'import { readFileSync } from "node:fs";',
    'import OpenAI from "openai";',
    isSocket && 'import { ResponsesWS } from "openai/resources/responses/ws";',
    `
const client = new OpenAI({ baseURL: ${JSON.stringify(baseUrl)} }); // reads OPENAI_API_KEY
`,
    functions.length > 0 &&
      `/** Gives the result of a function that the model calls, as text. Your code goes here. */
async function callFunction(name: string, args: Record<string, unknown>): Promise<string> {
  switch (name) {`,
    ...functions.map(
      ({ name, parameters }) => `    case ${JSON.stringify(name)}:${parameters && ` // args: ${parameters}`}
      return \`${name} is not written yet. It was called with \${JSON.stringify(args)}.\`;`,
    ),
    functions.length > 0 &&
      `    default:
      throw new Error(\`There is no function \${name}.\`);
  }
}

type Input = OpenAI.Responses.ResponseInput;`,
    `const request: OpenAI.Responses.${type} & Record<string, unknown> = ${written(body, TYPESCRIPT)};
${asks[kind]}`,
  );
}

/** JSON between the signs that begin and end a text of several lines, which cannot have them. */
const GO: Syntax = {
  string: (text) => JSON.stringify(text).replaceAll("`", '` + "`" + `'),
  file: ({ name, type }) => `"\` + dataURL(${JSON.stringify(name)}, ${JSON.stringify(type)}) + \`"`,
};

/** The program needs Go's own library only, which has no WebSocket. */
export function go({ body, kind, baseUrl, hasFiles, functions, repeats, isForced }: Request): string {
  const isStream = kind === "stream" || kind === "socket";
  const json = `\`${written(kind === "socket" ? { ...body, stream: true } : body, GO)}\``;
  const whole = `func main() {
  io.Copy(os.Stdout, post(${json}))
}
`;
  const stream = `func main() {
  lines := bufio.NewScanner(post(${json}))
  lines.Buffer(nil, 16<<20)
  for lines.Scan() {
    var event struct{ Type, Delta string }
    data, isData := strings.CutPrefix(lines.Text(), "data: ")
    if isData && json.Unmarshal([]byte(data), &event) == nil && event.Type == "response.output_text.delta" {
      fmt.Print(event.Delta)
    }
  }
}
`;
  const calls = lines(
    `// callFunction gives the result of a function that the model calls, as text. Your code goes here.
func callFunction(name, arguments string) string {
  switch name {`,
    ...functions.map(
      ({ name, parameters }) => `  case ${JSON.stringify(name)}:${parameters && ` // arguments: ${parameters}`}
    return ${JSON.stringify(`${name} is not written yet. It was called with `)} + arguments + "."`,
    ),
    `  }
  panic("There is no function " + name + ".")
}

func main() {
  var request map[string]any
  if err := json.Unmarshal([]byte(${json}), &request); err != nil {
    panic(err)
  }
  for isFinal := false; !isFinal; {
    body, err := json.Marshal(request)
    if err != nil {
      panic(err)
    }
    var answer struct{ Output []map[string]any }
    if err := json.NewDecoder(post(string(body))).Decode(&answer); err != nil {
      panic(err)
    }
    input := ${repeats ? 'append([]any{}, request["input"].([]any)...)' : "[]any{}"}
    isFinal = true
    for _, item := range answer.Output {`,
    repeats && "      input = append(input, item)",
    `      switch item["type"] {
      case "message":
        for _, part := range item["content"].([]any) {
          fmt.Println(part.(map[string]any)["text"])
        }
      case "function_call":
        isFinal = false
        output := callFunction(item["name"].(string), item["arguments"].(string))
        input = append(input, map[string]any{"type": "function_call_output", "call_id": item["call_id"], "output": output})
      }
    }
    request["input"] = input`,
    isForced && '    request["tool_choice"] = "auto"',
    `  }
}
`,
  );
  const imports = [
    ...(isStream ? ["bufio"] : []),
    ...(hasFiles ? ["encoding/base64"] : []),
    ...(kind === "whole" ? [] : ["encoding/json", "fmt"]),
    ...["io", "net/http", "os", "strings"],
  ];
  const program = lines(
    "// main.go: go run main.go",
    kind === "socket" && "// Go's own library has no WebSocket: the same as a stream.",
    `package main

import (
${imports.map((name) => `  "${name}"`).join("\n")}
)

// post sends a request, and gives the body of its answer.
func post(body string) io.ReadCloser {
  request, err := http.NewRequest("POST", ${JSON.stringify(`${baseUrl}/responses`)}, strings.NewReader(body))
  if err != nil {
    panic(err)
  }
  request.Header.Set("Authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))
  request.Header.Set("Content-Type", "application/json")
  response, err := http.DefaultClient.Do(request)
  if err != nil {
    panic(err)
  }
  if response.StatusCode != http.StatusOK {
    message, _ := io.ReadAll(response.Body)
    panic(string(message))
  }
  return response.Body
}

${kind === "calls" ? calls : isStream ? stream : whole}`,
    hasFiles &&
      `func dataURL(path, mimeType string) string {
  bytes, err := os.ReadFile(path)
  if err != nil {
    panic(err)
  }
  return "data:" + mimeType + ";base64," + base64.StdEncoding.EncodeToString(bytes)
}
`,
  );
  return program.replaceAll(/^(?: {2})+/gm, (spaces) => "\t".repeat(spaces.length / 2));
}
