import type { JsonObject } from "./json.ts";
import { pythonJson } from "./python-text.ts";

const TYPES: Record<number, string> = {
  400: "BadRequestError",
  404: "NotFoundError",
  422: "UnprocessableEntityError",
  429: "RateLimitError",
  500: "InternalServerError",
  501: "NotImplementedError",
  503: "ServiceUnavailableError",
};

/** An error that vLLM returns with its JSON error body. */
export class VllmError extends Error {
  readonly status: number;
  readonly param: string | null;
  readonly type: string;

  constructor(status: number, message: string, param: string | null = null, type = typeOf(status)) {
    super(message);
    this.name = "VllmError";
    this.status = status;
    this.param = param;
    this.type = type;
  }
}

/** A 400 without a field, vLLM's `BadRequestError`. */
export function badRequest(message: string): VllmError {
  return new VllmError(400, message);
}

/** vLLM's 400 for a field's value. Its message names the field and the value (in Python's form). */
export function badField(message: string, field: string, value?: string): VllmError {
  const given = value === undefined ? "" : `, value=${value}`;
  return new VllmError(400, `${message} (parameter=${field}${given})`, field);
}

/** One of pydantic's findings: where, and what is wrong. */
export type Finding = { type: string; loc: string; msg: string; input?: unknown; ctx?: JsonObject };

/** The 400 for a body that pydantic refuses. */
export function invalidBody(...findings: Finding[]): VllmError {
  const count = `${findings.length} validation error${findings.length === 1 ? "" : "s"}:`;
  const lines = findings.map((finding) => `\n  ${finding.type === "" ? finding.msg : pythonFinding(finding)}`);
  const param = findings[0]?.loc ?? null;
  return new VllmError(400, count + lines.join(""), param === "" ? null : param, "Bad Request");
}

/** The error for a grammar that cannot be built. A stream has already begun by then. */
export class GrammarError extends VllmError {}

/** vLLM's error after its EngineCore has died or failed. */
export function engineError(): VllmError {
  return new VllmError(500, "EngineCore encountered an issue. See stack trace (above) for the root cause.");
}

/** The fetch handler throws it, or ends its body with it, where a server would destroy the socket. */
export class ConnectionLost extends Error {
  constructor(fault: string) {
    super(`Simulated fault: ${fault}`);
    this.name = "ConnectionLost";
  }
}

/** vLLM's error body; `flat` is the shape from before 0.10 (vllm#22099). */
export function errorBody(error: VllmError, flat: boolean): JsonObject {
  const { message, type, param, status: code } = error;
  const info = { message, type, param, code };
  return flat ? { object: "error", ...info } : { error: info };
}

/** The same as the data of an event in a stream, which vLLM writes with spaces. */
export function errorEvent(error: VllmError, flat: boolean): string {
  return pythonJson(errorBody(error, flat));
}

function typeOf(status: number): string {
  return TYPES[status] ?? (status < 500 ? "BadRequestError" : "InternalServerError");
}

function pythonFinding({ type, loc, msg, input, ctx }: Finding): string {
  const fields = [`'type': ${pythonText(type)}`, `'loc': ${pythonText(loc)}`, `'msg': ${pythonText(msg)}`];
  fields.push(`'input': ${pythonText(shortInput(input))}`);
  if (ctx !== undefined) {
    const entries = Object.entries(ctx).map(
      ([key, value]) => `'${key}': ${typeof value === "string" ? pythonText(value) : String(value)}`,
    );
    fields.push(`'ctx': {${entries.join(", ")}}`);
  }
  return `{${fields.join(", ")}}`;
}

/** vLLM shows no prompt: of a list or an object it shows only the number of entries. */
function shortInput(input: unknown): string {
  if (Array.isArray(input)) return `<list of ${input.length} items>`;
  if (typeof input === "object" && input !== null) return `<dict of ${Object.keys(input).length} items>`;
  if (input === null || input === undefined) return "None";
  if (typeof input === "boolean") return input ? "True" : "False";
  return String(input);
}

/** Text as Python's `repr` writes it. */
function pythonText(text: string): string {
  const escaped = text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
  return text.includes("'") && !text.includes('"') ? `"${escaped}"` : `'${escaped.replaceAll("'", "\\'")}'`;
}
