import type { JsonObject } from "./json.ts";

const TYPES: Record<number, string> = {
  400: "BadRequestError",
  404: "NotFoundError",
  422: "UnprocessableEntityError",
  429: "RateLimitError",
  500: "InternalServerError",
  501: "NotImplementedError",
  503: "ServiceUnavailableError",
};

/** An error that vLLM answers with its JSON error body. */
export class VllmError extends Error {
  readonly status: number;
  readonly param: string | null;

  constructor(status: number, message: string, param: string | null = null) {
    super(message);
    this.name = "VllmError";
    this.status = status;
    this.param = param;
  }
}

/** A 400, vLLM's `BadRequestError`. */
export function badRequest(message: string, param: string | null = null): VllmError {
  return new VllmError(400, message, param);
}

/** What the fetch handler throws, or errors its body with, where a server would destroy the socket. */
export class ConnectionLost extends Error {
  constructor(fault: string) {
    super(`Simulated fault: ${fault}`);
    this.name = "ConnectionLost";
  }
}

/** vLLM's error body; `flat` is the shape from before 0.10 (vllm#22099). */
export function errorBody(error: VllmError, flat: boolean): JsonObject {
  const type = TYPES[error.status] ?? (error.status < 500 ? "BadRequestError" : "InternalServerError");
  const info = { message: error.message, type, param: error.param, code: error.status };
  return flat ? { object: "error", ...info } : { error: info };
}
