import { go } from "./code-go.ts";
import { python } from "./code-python.ts";
import { asProgram, overHttp, type Request } from "./code-request.ts";
import { typescript } from "./code-typescript.ts";
import { written } from "./code-values.ts";
import { shellWord } from "./connect-samples.ts";
import type { ApiObject } from "./json.ts";
import type { Transport } from "./sending.ts";

export { LocalFile, withLocalFiles } from "./code-values.ts";

/**
 * A request as a program for curl, Python, TypeScript and Go. A program reads the key from a variable and never contains
 * it. Its first line has its file's name and how to run it. A program that offers functions has the loop that answers
 * their calls.
 */

/**
 * The programs of a request. `body` is without the transport's fields, with files as LocalFile; `baseUrl` ends in
 * `/v1`.
 */
export function samplesOf(body: ApiObject, transport: Transport, baseUrl: string): { name: string; code: string }[] {
  const request = { body, transport, baseUrl };
  const program = asProgram(request);
  return [
    { name: "curl", code: curl(request, program.loop !== undefined) },
    { name: "Python", code: python(program) },
    { name: "TypeScript", code: typescript(program) },
    { name: "Go", code: go(program) },
  ];
}

/** A request as a command. A command has no loop: it says how a call is answered. */
function curl(request: Request, hasCalls: boolean): string {
  const json = written(overHttp(request), {
    string: (text) => JSON.stringify(text).replaceAll("'", "'\\''"),
    file: ({ name, type }) => `"data:${type};base64,'"$(base64 < ${shellWord(name)} | tr -d '\\n')"'"`,
    key: (name) => JSON.stringify(name).replaceAll("'", "'\\''"),
    words: { true: "true", false: "false", null: "null" },
    indent: "  ",
    space: " ",
  });
  const { transport, baseUrl } = request;
  return `${transport === "socket" ? "# curl speaks no WebSocket of this kind: the same as a stream.\n" : ""}${hasCalls ? CALLS : ""}curl ${transport === "whole" ? "" : "-N "}${baseUrl}/responses \\
  -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H 'Content-Type: application/json' \\
  -d '${json}'`;
}

const CALLS = `# The answer has an item of the type function_call. Send the same request again, with its result as the input:
#   "previous_response_id": "resp_…",
#   "input": [{"type": "function_call_output", "call_id": "call_…", "output": "the result"}]
`;
