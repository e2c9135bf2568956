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
  if (body.trimStart().startsWith("{")) {
    try {
      const value: unknown = JSON.parse(body);
      if (typeof value === "object" && value !== null && "code" in value && typeof value.code === "string") {
        return value.code;
      }
    } catch {
      // No JSON: a script that begins with a brace.
    }
  }
  return body;
}
