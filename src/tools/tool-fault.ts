import { FetchFault, type FetchFaultKind } from "@responses-edge/guarded-fetch";

/**
 * Faults of a tool on another server: those of any call (`too_large` may also be the number of tools, and
 * `protocol` an error of the protocol, with its `code`), and
 * - `http`: an HTTP error, with its `status`;
 * - `tool`: the tool ran and failed.
 */
export type FaultKind = FetchFaultKind | "http" | "tool";

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

/** The fault of a tool, whatever was thrown. */
export function toToolFault(error: unknown): ToolFault {
  if (error instanceof ToolFault) return error;
  if (error instanceof FetchFault) return new ToolFault(error.kind, error.message);
  return new ToolFault("unreachable", "The tool could not be run.");
}
