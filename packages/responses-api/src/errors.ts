export interface ErrorFields {
  /** HTTP status. */
  status: number;
  message: string;
  type?: string;
  param?: string | null;
  code: string;
  headers?: Record<string, string>;
  /** A model server's own text, for the operator. */
  upstream?: string | undefined;
}

/** The longest text of a model server that an error keeps, in characters. */
const MAX_UPSTREAM_LENGTH = 1_000;

/**
 * The one error class of the API. Thrown where the fault is known, rendered in one place
 * (`http/app.ts`; on sockets `socket/frames.ts`), in OpenAI's shape `{"error":{"message","type","param","code"}}`.
 */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;
  readonly type: string;
  /** The path of the invalid field (`input[2].content[0].image_url`), or null without one. */
  readonly param: string | null;
  readonly code: string;
  readonly headers: Record<string, string>;
  /** The model server's own text of its failure, for the operator. No answer, event or stored error has it. */
  readonly upstream: string | undefined;

  constructor(fields: ErrorFields) {
    super(fields.message);
    this.status = fields.status;
    this.type = fields.type ?? (fields.status >= 500 ? "server_error" : "invalid_request_error");
    this.param = fields.param ?? null;
    this.code = fields.code;
    this.headers = fields.headers ?? {};
    this.upstream = fields.upstream?.slice(0, MAX_UPSTREAM_LENGTH);
  }

  /**
   * The error as plain data for RPC, which loses classes, and without the model server's own text. `new ApiError(fields)` makes it an
   * error again.
   */
  toFields(): ErrorFields {
    const { status, message, type, param, code, headers } = this;
    return { status, message, type, param, code, headers };
  }

  /** The HTTP body, all four keys always present. */
  toBody(): { error: { message: string; type: string; param: string | null; code: string } } {
    return { error: { message: this.message, type: this.type, param: this.param, code: this.code } };
  }
}

/** The error that ends the work for a client that has disconnected. No client sees it. */
export function clientLeft(): ApiError {
  return new ApiError({ status: 499, message: "The client closed the request.", code: "client_closed_request" });
}

/** 400 on a request field. `param` is the field's path. */
export function invalidRequest(param: string | null, message: string, code = "invalid_value"): ApiError {
  return new ApiError({ status: 400, message, param, code });
}

/** The kinds of things that a client names by an id, as not-found messages call them. */
type Named =
  | "API key"
  | "Approval request"
  | "Audit log entry"
  | "Batch"
  | "Container"
  | "Conversation"
  | "File"
  | "File batch"
  | "Item"
  | "Part"
  | "Previous response"
  | "Response"
  | "Run"
  | "Upload"
  | "Vector store"
  | "Webhook delivery"
  | "Webhook endpoint";

/** Ids of this server have at most 64 characters; of a longer one an error shows the beginning. */
const SHOWN_ID_LENGTH = 64;

/**
 * The error of an id that is unknown, deleted, expired, or another tenant's: always the same, in OpenAI's words.
 * @param param The field or the path parameter that has the id.
 * @param more `status` is 400 where the id is in a field, 404 in a path. `where` continues the message: ` in upload 'a'`.
 */
export function notFound(
  thing: Named,
  id: string,
  param: string,
  { status = 404, where = "" }: { status?: 400 | 404; where?: string } = {},
): ApiError {
  const message = `${thing} with id '${id.slice(0, SHOWN_ID_LENGTH)}' not found${where}.`;
  return new ApiError({ status, message, param, code: `${thing.toLowerCase().replaceAll(" ", "_")}_not_found` });
}

/** The 404 of a response. */
export function responseNotFound(id: string): ApiError {
  return notFound("Response", id, "response_id");
}

/**
 * Why a response that exists cannot be continued: it has not ended, an earlier one that it continues was deleted, or it was made with
 * `store: false`.
 */
export type Uncontinuable = "in_progress" | "incomplete_chain" | "not_stored";

const UNCONTINUABLE: Record<Uncontinuable, string> = {
  in_progress: "is still in progress. It can be continued once it has ended.",
  incomplete_chain: "cannot be continued, because an earlier response that it continues was deleted.",
  not_stored: "cannot be continued, because it was created with 'store: false'.",
};

/**
 * The 400 of a `previous_response_id` that cannot be continued. Clients that send everything again after the code do so
 * whatever the reason.
 */
export function previousResponseNotFound(id: string, why?: Uncontinuable): ApiError {
  const missing = notFound("Previous response", id, "previous_response_id", { status: 400 });
  if (why === undefined) return missing;
  const message = `Previous response with id '${id.slice(0, SHOWN_ID_LENGTH)}' ${UNCONTINUABLE[why]}`;
  return new ApiError({ ...missing.toFields(), message });
}

/** The 404 of a conversation. */
export function conversationNotFound(id: string): ApiError {
  return notFound("Conversation", id, "conversation");
}

/** The 404 of a file. */
export function fileNotFound(id: string): ApiError {
  return notFound("File", id, "file_id");
}

/** The 404 of a vector store. */
export function storeNotFound(id: string): ApiError {
  return notFound("Vector store", id, "vector_store_id");
}

/** The 404 of a container. */
export function containerNotFound(id: string, param = "container_id"): ApiError {
  return notFound("Container", id, param);
}

/** The 400 of a container whose state is gone (OpenAI's text): it was idle too long, or its tool server has lost it. */
export function containerExpired(param = "container_id"): ApiError {
  return invalidRequest(param, "Container is expired.", "container_expired");
}

/** The 409 of a conversation that another turn holds (OpenAI's code and text). */
export function conversationLocked(): ApiError {
  return new ApiError({
    status: 409,
    message: "Another process is currently operating on this conversation. Please retry in a few seconds.",
    param: "conversation",
    code: "conversation_locked",
    headers: { "retry-after": "2" },
  });
}

/** The 409 of a change of a response that is running. */
export function responseInProgress(): ApiError {
  const message = "The response is still in progress. It can be changed once it has ended.";
  return new ApiError({ status: 409, message, param: "response_id", code: "response_in_progress" });
}

/** The 429 of a tenant, a conversation or a response with the maximum of work in progress (OpenAI's code and type). */
export function tooManyInProgress(message: string): ApiError {
  return new ApiError({
    status: 429,
    type: "rate_limit_error",
    message,
    code: "rate_limit_exceeded",
    headers: { "retry-after": "5" },
  });
}

/** The 400 of a prompt that exceeds the model's context window. */
export function contextLengthExceeded(message: string): ApiError {
  return invalidRequest("input", message, "context_length_exceeded");
}

/** The error of an unexpected fault. It has no details. */
export function internalError(): ApiError {
  return new ApiError({
    status: 500,
    message: "The server had an error while processing your request.",
    code: "server_error",
  });
}

/** Any thrown value as an ApiError; any other error becomes the opaque 500. */
export function toApiError(error: unknown): ApiError {
  return error instanceof ApiError ? error : internalError();
}

/** 503: the process stops, and accepts nothing new. */
export function serverIsStopping(): ApiError {
  const message = "The server is about to stop. Please retry in a few seconds.";
  return new ApiError({ status: 503, message, code: "server_is_stopping", headers: { "retry-after": "2" } });
}
