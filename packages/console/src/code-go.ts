import { type CallLoop, callLoopOf, overHttp, withListedInput } from "./code-request.ts";
import { type Form, filesIn, written } from "./code-values.ts";
import type { Transport } from "./sending.ts";

/** JSON between the signs that begin and end a text of several lines, which cannot have them. */
function inGo(json: string): string {
  return json.replaceAll("`", '` + "`" + `');
}

const FORM: Form = {
  string: (text) => inGo(JSON.stringify(text)),
  file: ({ name, type }) => `"\` + dataURL(${JSON.stringify(name)}, ${JSON.stringify(type)}) + \`"`,
  key: (name) => inGo(JSON.stringify(name)),
  words: { true: "true", false: "false", null: "null" },
  indent: "\t",
  space: " ",
};

/** A request as a Go program, which needs Go's own library only. */
export function go(body: Record<string, unknown>, transport: Transport, baseUrl: string): string {
  const loop = callLoopOf(body, transport === "socket" ? "stream" : transport);
  const isStream = transport !== "whole";
  const begun = loop?.keptBy === "input" ? withListedInput(body) : body;
  const json = `\`${written(overHttp(begun, transport), FORM)}\``;
  const imports = [
    ...(isStream ? ["bufio"] : []),
    ...(filesIn(body) ? ["encoding/base64"] : []),
    ...(isStream || loop ? ["encoding/json", "fmt"] : []),
    ...(isStream && !loop ? [] : ["io"]),
    ...["net/http", "os", "strings"],
  ];
  const lines = [
    "// main.go: go run main.go",
    ...(transport === "socket" ? ["// Go's own library has no WebSocket: the same as a stream."] : []),
    "package main",
    "",
    "import (",
    ...imports.map((name) => `\t${JSON.stringify(name)}`),
    ")",
    "",
    ...(loop ? withCalls(loop, json, baseUrl, isStream) : oneRequest(json, baseUrl, isStream)),
    ...(filesIn(body) ? DATA_URL : []),
    "",
  ];
  return lines.join("\n");
}

function oneRequest(json: string, baseUrl: string, isStream: boolean): string[] {
  return [
    "func main() {",
    ...posting(json, baseUrl),
    ...(isStream ? streaming("struct{ Type, Delta string }", []) : ["\tio.Copy(os.Stdout, response.Body)"]),
    "}",
  ];
}

/** The request `body`, an expression. The names that stay are `response` and `err`. */
function posting(body: string, baseUrl: string): string[] {
  return [
    `\tbody := ${body}`,
    `\trequest, err := http.NewRequest("POST", ${JSON.stringify(`${baseUrl}/responses`)}, strings.NewReader(body))`,
    ...PANIC,
    '\trequest.Header.Set("Authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))',
    '\trequest.Header.Set("Content-Type", "application/json")',
    "\tresponse, err := http.DefaultClient.Do(request)",
    ...PANIC,
    "\tdefer response.Body.Close()",
  ];
}

const PANIC = ["\tif err != nil {", "\t\tpanic(err)", "\t}"];

/** Reads a stream and prints its text. `more`: the lines about other events, which are each an `event` of a `type`. */
function streaming(type: string, more: readonly string[]): string[] {
  return [
    "\tlines := bufio.NewScanner(response.Body)",
    "\tlines.Buffer(nil, 16<<20)",
    "\tfor lines.Scan() {",
    `\t\tvar event ${type}`,
    '\t\tdata, isData := strings.CutPrefix(lines.Text(), "data: ")',
    "\t\tif !isData || json.Unmarshal([]byte(data), &event) != nil {",
    "\t\t\tcontinue",
    "\t\t}",
    '\t\tif event.Type == "response.output_text.delta" {',
    "\t\t\tfmt.Print(event.Delta)",
    "\t\t}",
    ...more,
    "\t}",
  ];
}

/** The request again and again, with the results of the functions that it calls, until there is a final text. */
function withCalls(loop: CallLoop, json: string, baseUrl: string, isStream: boolean): string[] {
  const isRepeated = loop.keptBy === "input";
  return [
    ...TYPES,
    "// callFunction gives the result of a function that the model calls, as text. Your code goes here.",
    "func callFunction(name, arguments string) string {",
    "\tswitch name {",
    ...loop.functions.flatMap(({ name, parameters }) => [
      `\tcase ${JSON.stringify(name)}:${parameters.length > 0 ? ` // arguments: ${parameters.join(", ")}` : ""}`,
      `\t\treturn ${JSON.stringify(`${name} is not written yet. It was called with `)} + arguments + "."`,
    ]),
    "\t}",
    '\tpanic("There is no function " + name + ".")',
    "}",
    "",
    "func main() {",
    "\tvar request map[string]any",
    `\tif err := json.Unmarshal([]byte(${json}), &request); err != nil {`,
    "\t\tpanic(err)",
    "\t}",
    "\tfor {",
    "\t\tanswer := send(request)",
    `\t\toutputs := ${isRepeated ? 'request["input"].([]any)' : "[]any{}"}`,
    "\t\tisFinal := true",
    "\t\tfor _, item := range answer.Output {",
    ...(isRepeated ? ["\t\t\toutputs = append(outputs, item)"] : []),
    ...(isStream ? [] : PRINTING),
    '\t\t\tif item["type"] == "function_call" {',
    "\t\t\t\tisFinal = false",
    '\t\t\t\toutput := callFunction(item["name"].(string), item["arguments"].(string))',
    '\t\t\t\tcallID := item["call_id"]',
    '\t\t\t\toutputs = append(outputs, map[string]any{"type": "function_call_output", "call_id": callID, "output": output})',
    "\t\t\t}",
    "\t\t}",
    "\t\tif isFinal {",
    "\t\t\treturn",
    "\t\t}",
    ...(loop.keptBy === "previous_response_id" ? ['\t\trequest["previous_response_id"] = answer.ID'] : []),
    '\t\trequest["input"] = outputs',
    ...(loop.isForced ? ['\t\trequest["tool_choice"] = "auto"'] : []),
    "\t}",
    "}",
    "",
    ...(isStream ? ["// send prints the text of an answer as it comes, and gives the whole answer."] : []),
    "func send(fields map[string]any) (ended answer) {",
    "\tjsonBody, err := json.Marshal(fields)",
    ...PANIC,
    ...posting("string(jsonBody)", baseUrl),
    "\tif response.StatusCode != http.StatusOK {",
    "\t\tmessage, _ := io.ReadAll(response.Body)",
    "\t\tpanic(string(message))",
    "\t}",
    ...(isStream ? streaming(EVENT, COMPLETED) : DECODING),
    "\treturn ended",
    "}",
  ];
}

const TYPES = ["type answer struct {", "\tID     string", "\tOutput []map[string]any", "}", ""];
const EVENT = "struct {\n\t\t\tType, Delta string\n\t\t\tResponse    answer\n\t\t}";
const COMPLETED = ['\t\tif event.Type == "response.completed" {', "\t\t\tended = event.Response", "\t\t}"];
const DECODING = ["\tif err := json.NewDecoder(response.Body).Decode(&ended); err != nil {", "\t\tpanic(err)", "\t}"];
const PRINTING = [
  '\t\t\tif item["type"] == "message" {',
  '\t\t\t\tfor _, part := range item["content"].([]any) {',
  '\t\t\t\t\tfmt.Println(part.(map[string]any)["text"])',
  "\t\t\t\t}",
  "\t\t\t}",
];

const DATA_URL = [
  "",
  "func dataURL(path, mimeType string) string {",
  "\tbytes, err := os.ReadFile(path)",
  ...PANIC,
  '\treturn "data:" + mimeType + ";base64," + base64.StdEncoding.EncodeToString(bytes)',
  "}",
];
