/**
 * What went wrong with a tool on another server:
 * - `refused_address`: the URL, or one it redirects to, may not be called from here;
 * - `timeout`: no complete answer in the time allowed;
 * - `too_large`: an answer beyond the bytes or the number of tools allowed;
 * - `unreachable`: no connection, or one that was lost;
 * - `http`: an HTTP error, with its `status`;
 * - `protocol`: an answer that is no answer, or an error of the protocol, with its `code` where it has one;
 * - `tool`: the tool ran and failed.
 */
export type FaultKind = "refused_address" | "timeout" | "too_large" | "unreachable" | "http" | "protocol" | "tool";

/**
 * The one error class of tools on other servers. Its message may be shown to clients and to models: it names nothing
 * but what the caller gave, and holds no credentials.
 */
export class ToolFault extends Error {
  override readonly name = "ToolFault";
  readonly kind: FaultKind;
  /** The HTTP status, of kind `http`. */
  readonly status: number | undefined;
  /** The JSON-RPC error code, of kind `protocol` when the server sent one. */
  readonly code: number | undefined;

  constructor(kind: FaultKind, message: string, { status, code }: { status?: number; code?: number } = {}) {
    super(message);
    this.kind = kind;
    this.status = status;
    this.code = code;
  }
}

/** What went wrong with a tool, whatever was thrown. */
export function toToolFault(error: unknown): ToolFault {
  return error instanceof ToolFault ? error : new ToolFault("unreachable", "The tool could not be run.");
}
