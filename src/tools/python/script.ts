import { parseArguments } from "../../protocol/json.ts";

const FENCED = /^\s*```[\w+-]*\r?\n([\s\S]*?)\r?\n?```\s*$/;

/**
 * The script of a message to `python`, which should be the whole body: the model also wraps it, as `{"code": …}` or
 * between fences. Any other body is the script itself.
 */
export function unwrapScript(body: string): string {
  const script = fromJson(body);
  return FENCED.exec(script)?.[1] ?? script;
}

function fromJson(body: string): string {
  // What begins with a brace may be a script all the same.
  const code = body.trimStart().startsWith("{") ? parseArguments(body)?.code : undefined;
  return typeof code === "string" ? code : body;
}
