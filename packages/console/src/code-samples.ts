/**
 * The code of a request for curl, Python, TypeScript and Go. The code reads the key from a variable and never contains
 * it.
 */
import { shellWord } from "./connect-samples.ts";
import type { Parsed } from "./json.ts";
import type { Transport } from "./sending.ts";

/** Stands in a body for a file that the program reads itself. */
export class LocalFile {
  name: string;
  type: string;

  constructor(name: string, type: string) {
    this.name = name;
    this.type = type;
  }
}

/**
 * @param body without the transport's fields; files as LocalFile
 * @param baseUrl with `/v1`
 */
export function samplesOf(
  body: Record<string, unknown>,
  transport: Transport,
  baseUrl: string,
): { name: string; code: string }[] {
  return [
    { name: "curl", code: curl(body, transport, baseUrl) },
    { name: "Python", code: python(body, transport, baseUrl) },
    { name: "TypeScript", code: typescript(body, transport, baseUrl) },
    { name: "Go", code: go(body, transport, baseUrl) },
  ];
}

function overHttp(body: Record<string, unknown>, transport: Transport) {
  if (transport === "whole") return body;
  return transport === "background" ? { ...body, background: true, stream: true } : { ...body, stream: true };
}

function curl(body: Record<string, unknown>, transport: Transport, baseUrl: string) {
  const json = written(overHttp(body, transport), {
    string: (text) => JSON.stringify(text).replaceAll("'", "'\\''"),
    file: ({ name, type }) => `"data:${type};base64,'"$(base64 < ${shellWord(name)} | tr -d '\\n')"'"`,
    key: (name) => JSON.stringify(name).replaceAll("'", "'\\''"),
    words: { true: "true", false: "false", null: "null" },
    indent: "  ",
    space: " ",
  });
  const note = transport === "socket" ? "# curl speaks no WebSocket of this kind: the same as a stream.\n" : "";
  return `${note}curl ${transport === "whole" ? "" : "-N "}${baseUrl}/responses \\
  -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H 'Content-Type: application/json' \\
  -d '${json}'`;
}

function python(body: Record<string, unknown>, transport: Transport, baseUrl: string) {
  const form = {
    string: pythonText,
    file: ({ name, type }: LocalFile) => `data_url(${pythonText(name)}, ${pythonText(type)})`,
    key: pythonText,
    words: { true: "True", false: "False", null: "None" },
    indent: "    ",
    space: "",
  };
  const hasFiles = filesIn(body);
  const head = `${hasFiles ? "import base64\n" : ""}from openai import OpenAI

client = OpenAI(base_url=${pythonText(baseUrl)})  # reads OPENAI_API_KEY
${
  hasFiles
    ? `
def data_url(path, mime_type):
    with open(path, "rb") as file:
        return f"data:{mime_type};base64,{base64.b64encode(file.read()).decode()}"

`
    : ""
}`;
  if (transport === "socket") {
    return `${head}
with client.responses.connect() as connection:  # pip install 'openai[realtime]'
    connection.send(${written({ type: "response.create", ...body }, form, 1)})
    for event in connection:
        if event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
        elif event.type in ("response.completed", "response.failed", "response.incomplete", "error"):
            break`;
  }
  const lines = Object.entries(overHttp(knownToPython(body), transport)).map(
    ([name, value]) => `    ${name}=${written(value, form, 1)},`,
  );
  const args = `\n${lines.join("\n")}\n`;
  if (transport === "whole") {
    return `${head}
response = client.responses.create(${args})
print(response.output_text)`;
  }
  return `${head}
for event in client.responses.create(${args}):
    if event.type == "response.output_text.delta":
        print(event.delta, end="", flush=True)`;
}

/** Arguments that the Python client has; what it does not know goes in `extra_body`. */
const PYTHON_ARGUMENTS = new Set(
  "background conversation include input instructions max_output_tokens max_tool_calls metadata model parallel_tool_calls previous_response_id prompt_cache_key reasoning service_tier store stream temperature text tool_choice tools top_logprobs top_p truncation user".split(
    " ",
  ),
);

function knownToPython(body: Record<string, unknown>) {
  const entries = Object.entries(body);
  const extra = entries.filter(([name]) => !PYTHON_ARGUMENTS.has(name));
  const known = entries.filter(([name]) => PYTHON_ARGUMENTS.has(name));
  return { ...Object.fromEntries(known), ...(extra.length > 0 && { extra_body: Object.fromEntries(extra) }) };
}

/** JSON's escapes are Python's, too. */
function pythonText(text: string) {
  return JSON.stringify(text);
}

function typescript(body: Record<string, unknown>, transport: Transport, baseUrl: string) {
  const form = {
    string: (text: string) => JSON.stringify(text),
    file: ({ name, type }: LocalFile) => `\`data:${type};base64,\${readFileSync(${JSON.stringify(name)}, "base64")}\``,
    key: (name: string) => (/^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name)),
    words: { true: "true", false: "false", null: "null" },
    indent: "  ",
    space: " ",
  };
  const files = filesIn(body) ? 'import { readFileSync } from "node:fs";\n' : "";
  const client = `const client = new OpenAI({ baseURL: ${JSON.stringify(baseUrl)} }); // reads OPENAI_API_KEY\n`;
  if (transport === "socket") {
    return `${files}import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws"; // needs the package ws

${client}
const socket = new ResponsesWS(client);
socket.on("response.output_text.delta", ({ delta }) => process.stdout.write(delta));
for (const end of ["response.completed", "response.failed", "response.incomplete"] as const) socket.on(end, () => socket.close());
socket.send(${written({ type: "response.create", ...body }, form)});`;
  }
  const args = written(overHttp(body, transport), form);
  const head = `${files}import OpenAI from "openai";\n\n${client}`;
  if (transport === "whole") {
    return `${head}
const response = await client.responses.create(${args});
console.log(response.output_text);`;
  }
  return `${head}
const stream = await client.responses.create(${args});
for await (const event of stream) {
  if (event.type === "response.output_text.delta") process.stdout.write(event.delta);
}`;
}

/** JSON between the signs that begin and end a text of several lines, which cannot have them. */
function inGo(json: string) {
  return json.replaceAll("`", '` + "`" + `');
}

function go(body: Record<string, unknown>, transport: Transport, baseUrl: string) {
  const json = written(overHttp(body, transport), {
    string: (text) => inGo(JSON.stringify(text)),
    file: ({ name, type }) => `"\` + dataURL(${JSON.stringify(name)}, ${JSON.stringify(type)}) + \`"`,
    key: (name) => inGo(JSON.stringify(name)),
    words: { true: "true", false: "false", null: "null" },
    indent: "\t",
    space: " ",
  });
  const hasFiles = filesIn(body);
  const isStream = transport !== "whole";
  const imports = [
    ...(isStream ? ["bufio"] : []),
    ...(hasFiles ? ["encoding/base64"] : []),
    ...(isStream ? ["encoding/json", "fmt"] : ["io"]),
    ...["net/http", "os", "strings"],
  ];
  const note = transport === "socket" ? "// Go's own library has no WebSocket: the same as a stream.\n" : "";
  const reading = isStream
    ? `	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event struct{ Type, Delta string }
		data, isData := strings.CutPrefix(lines.Text(), "data: ")
		if isData && json.Unmarshal([]byte(data), &event) == nil && event.Type == "response.output_text.delta" {
			fmt.Print(event.Delta)
		}
	}`
    : "	io.Copy(os.Stdout, response.Body)";
  return `${note}package main

import (
${imports.map((name) => `\t${JSON.stringify(name)}`).join("\n")}
)

func main() {
	body := \`${json}\`
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
	defer response.Body.Close()
${reading}
}
${
  hasFiles
    ? `
func dataURL(path, mimeType string) string {
	bytes, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return "data:" + mimeType + ";base64," + base64.StdEncoding.EncodeToString(bytes)
}
`
    : ""
}`;
}

/** Shorter texts of files stay in the code. Characters. */
const SHORT = 1_000;

/**
 * A body that was sent, with what a program reads of files in the place of their bytes.
 * @param name of the file
 */
export function withLocalFiles(value: unknown, name: string = "image"): Parsed {
  if (typeof value === "string" && value.length > SHORT && value.startsWith("data:")) {
    const type = /^data:([\w.+/-]*)/.exec(value)?.[1] || "application/octet-stream";
    return new LocalFile(name === "image" ? `image.${type.split("/")[1]}` : name, type);
  }
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((each) => withLocalFiles(each));
  const own = "filename" in value ? String(value.filename) : undefined;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, withLocalFiles(each, own)]));
}

/** @returns whether there are files in it */
function filesIn(value: unknown): boolean {
  if (value instanceof LocalFile) return true;
  return typeof value === "object" && value !== null && Object.values(value).some(filesIn);
}

/** A value as a language writes it. */
export interface Form {
  string: (text: string) => string;
  file: (file: LocalFile) => string;
  key: (name: string) => string;
  words: { true: string; false: string; null: string };
  indent: string;
  /** within the braces of an object on one line */
  space: string;
}

function written(value: unknown, form: Form, depth = 0): string {
  if (value instanceof LocalFile) return form.file(value);
  if (typeof value === "string") return form.string(value);
  if (value === null || value === undefined) return form.words.null;
  if (typeof value === "boolean") return form.words[value ? "true" : "false"];
  if (typeof value !== "object") return String(value);
  const parts = Array.isArray(value)
    ? value.map((each) => written(each, form, depth + 1))
    : Object.entries(value).map(([name, each]) => `${form.key(name)}: ${written(each, form, depth + 1)}`);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (parts.length === 0) return open + close;
  const space = open === "{" ? form.space : "";
  const line = `${open}${space}${parts.join(", ")}${space}${close}`;
  if (line.length + depth * 2 < 80 && !line.includes("\n")) return line;
  const indent = form.indent.repeat(depth + 1);
  return `${open}\n${parts.map((part) => indent + part).join(",\n")}\n${form.indent.repeat(depth)}${close}`;
}
