import { ApiError } from "@responses-edge/responses-api/errors";

/** The faults of a turn that are this server's own. */

/** The error of a generation that its process has left unfinished. */
export function restarted(): ApiError {
  return new ApiError({
    status: 500,
    message: "The server was restarted in the middle of the response.",
    code: "server_restarted",
  });
}

/** The error of a turn that was generated, and is lost. */
export function notStored(): ApiError {
  return new ApiError({ status: 500, message: "The response could not be stored.", code: "storage_error" });
}

/** 502: a generation that the client has seen broke off where it cannot continue, because of `fault`. */
export function cannotContinue(fault: ApiError): ApiError {
  return new ApiError({
    status: 502,
    message: `${fault.message} The generation cannot resume in the middle of a function call, structured output or a refusal.`,
    code: "cannot_continue",
  });
}
