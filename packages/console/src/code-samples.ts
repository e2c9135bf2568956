import { go, python, typescript } from "./code-programs.ts";
import { filesIn, type Request, written } from "./code-values.ts";
import { shellWord } from "./connect-samples.ts";
import type { ApiObject } from "./json.ts";
import type { Transport } from "./sending.ts";

export { LocalFile, withLocalFiles } from "./code-values.ts";

/**
 * A request as a program for curl, Python, TypeScript and Go. A program reads the key from a variable and never contains
 * it. Its first line has its file's name and how to run it. A program that offers functions answers their calls: it
 * takes whole answers, and asks again with the results until there is a final text.
 */

/**
 * The programs of a request. `body` is without the transport's fields, with files as LocalFile; `baseUrl` ends in
 * `/v1`.
 */
export function samplesOf(body: ApiObject, transport: Transport, baseUrl: string): { name: string; code: string }[] {
  const request = requestOf(body, transport, baseUrl);
  return [
    { name: "curl", code: curl(request) },
    { name: "Python", code: python(request) },
    { name: "TypeScript", code: typescript(request) },
    { name: "Go", code: go(request) },
  ];
}

function requestOf(body: ApiObject, transport: Transport, baseUrl: string): Request {
  const functions = functionsIn(body.tools);
  const choice = body.tool_choice;
  const isForced =
    choice === "required" ||
    (isObject(choice) && (choice.type === "allowed_tools" ? choice.mode === "required" : choice.type !== undefined));
  const common = { baseUrl, functions, hasFiles: filesIn(body), repeats: body.conversation === undefined, isForced };
  if (functions.length > 0) {
    const isText = common.repeats && typeof body.input === "string";
    const input = isText ? [{ role: "user", content: body.input }] : (body.input ?? []);
    return { ...common, kind: "calls", body: { ...body, input } };
  }
  if (transport === "whole" || transport === "socket") return { ...common, kind: transport, body };
  const background = transport === "background" ? { background: true } : {};
  return { ...common, kind: "stream", body: { ...body, ...background, stream: true } };
}

function functionsIn(tools: unknown): Request["functions"] {
  if (!Array.isArray(tools)) return [];
  return tools.flatMap((tool: unknown) => {
    if (!isObject(tool)) return [];
    if (tool.type === "namespace") return functionsIn(tool.tools);
    if (tool.type !== "function" || typeof tool.name !== "string") return [];
    const properties = isObject(tool.parameters) ? tool.parameters.properties : undefined;
    return [{ name: tool.name, parameters: isObject(properties) ? Object.keys(properties).join(", ") : "" }];
  });
}

function isObject(value: unknown): value is ApiObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A request as a command. A command has no loop: it says how a call is answered. */
function curl({ body, kind, baseUrl }: Request): string {
  const json = written(kind === "socket" ? { ...body, stream: true } : body, {
    string: (text) => JSON.stringify(text).replaceAll("'", "'\\''"),
    file: ({ name, type }) => `"data:${type};base64,'"$(base64 < ${shellWord(name)} | tr -d '\\n')"'"`,
  });
  const isStream = kind === "stream" || kind === "socket";
  return `${kind === "socket" ? "# curl speaks no WebSocket of this kind: the same as a stream.\n" : ""}${kind === "calls" ? CALLS : ""}curl ${isStream ? "-N " : ""}${baseUrl}/responses \\
  -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H 'Content-Type: application/json' \\
  -d '${json}'`;
}

const CALLS = `# The answer has an item of the type function_call. Send the same request again, with its result as the input:
#   "previous_response_id": "resp_…",
#   "input": [{"type": "function_call_output", "call_id": "call_…", "output": "the result"}]
`;
