import { type CallLoop, overHttp, type Request } from "./code-request.ts";
import { type Form, filesIn, written } from "./code-values.ts";

/** JSON between the signs that begin and end a text of several lines, which cannot have them. */
function inGo(json: string): string {
  return json.replaceAll("`", '` + "`" + `');
}

const FORM: Form = {
  string: (text) => inGo(JSON.stringify(text)),
  file: ({ name, type }) => `"\` + dataURL(${JSON.stringify(name)}, ${JSON.stringify(type)}) + \`"`,
  key: (name) => inGo(JSON.stringify(name)),
  words: { true: "true", false: "false", null: "null" },
  indent: "  ",
  space: " ",
};

/** A request as a Go program, which needs Go's own library only. */
export function go(request: Request): string {
  const { body, transport, baseUrl, loop } = request;
  const isStream = transport !== "whole";
  const json = `\`${written(overHttp(request), FORM)}\``;
  const imports = [
    ...(isStream ? ["bufio"] : []),
    ...(filesIn(body) ? ["encoding/base64"] : []),
    ...(isStream || loop ? ["encoding/json", "fmt"] : []),
    ...["io", "net/http", "os", "strings"],
  ];
  const program = `// main.go: go run main.go
${transport === "socket" ? "// Go's own library has no WebSocket: the same as a stream.\n" : ""}package main

import (
${imports.map((name) => `  "${name}"\n`).join("")})

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

${loop ? withCalls(loop, json) : isStream ? streaming(json) : whole(json)}${filesIn(body) ? DATA_URL : ""}`;
  return program.replaceAll(/^(?: {2})+/gm, (spaces) => "\t".repeat(spaces.length / 2));
}

const whole = (json: string) => `func main() {
  response := post(${json})
  defer response.Close()
  io.Copy(os.Stdout, response)
}
`;

/** Reads a stream and prints its text. */
const streaming = (json: string) => `func main() {
  response := post(${json})
  defer response.Close()
  lines := bufio.NewScanner(response)
  lines.Buffer(nil, 16<<20)
  for lines.Scan() {
    var event struct{ Type, Delta string }
    data, isData := strings.CutPrefix(lines.Text(), "data: ")
    if !isData || json.Unmarshal([]byte(data), &event) != nil {
      continue
    }
    if event.Type == "response.output_text.delta" {
      fmt.Print(event.Delta)
    }
  }
}
`;

/** The request again and again, with the results of the functions that it calls, until there is a final text. */
function withCalls({ functions, keptBy, isForced }: CallLoop, json: string): string {
  const cases = functions.map(
    ({ name, parameters }) => `  case ${JSON.stringify(name)}:${parameters && ` // arguments: ${parameters}`}
    return ${JSON.stringify(`${name} is not written yet. It was called with `)} + arguments + "."
`,
  );
  return `// callFunction gives the result of a function that the model calls, as text. Your code goes here.
func callFunction(name, arguments string) string {
  switch name {
${cases.join("")}  }
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
    var answer struct {
      ID     string
      Output []map[string]any
    }
    if err := json.NewDecoder(post(string(body))).Decode(&answer); err != nil {
      panic(err)
    }
    outputs := ${keptBy === "input" ? 'request["input"].([]any)' : "[]any{}"}
    isFinal = true
    for _, item := range answer.Output {
${keptBy === "input" ? "      outputs = append(outputs, item)\n" : ""}      switch item["type"] {
      case "message":
        for _, part := range item["content"].([]any) {
          fmt.Println(part.(map[string]any)["text"])
        }
      case "function_call":
        isFinal = false
        output := callFunction(item["name"].(string), item["arguments"].(string))
        outputs = append(outputs, map[string]any{"type": "function_call_output", "call_id": item["call_id"], "output": output})
      }
    }
${keptBy === "previous_response_id" ? '    request["previous_response_id"] = answer.ID\n' : ""}    request["input"] = outputs
${isForced ? '    request["tool_choice"] = "auto"\n' : ""}  }
}
`;
}

const DATA_URL = `
func dataURL(path, mimeType string) string {
  bytes, err := os.ReadFile(path)
  if err != nil {
    panic(err)
  }
  return "data:" + mimeType + ";base64," + base64.StdEncoding.EncodeToString(bytes)
}
`;
