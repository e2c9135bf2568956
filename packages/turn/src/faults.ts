import { ApiError } from "@responses-edge/responses-api/errors";
import type { ToolOutcome } from "./contract/tool-session.ts";

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
    message: `${fault.message} The generation cannot resume in the middle of a refusal, or of a text that no model server continues.`,
    code: "cannot_continue",
  });
}

/** The answer to a call whose outcome is unknown. */
export function interrupted(): ToolOutcome {
  const output = "The server was restarted while this tool was running. Whether it did its work is not known.";
  return { output, failed: true, error: { type: "mcp_protocol_error", code: -32000, message: output } };
}

/** 503: no program can be run now. */
export function programNotRun(): ApiError {
  return new ApiError({
    status: 503,
    message: "This server cannot run programs now.",
    code: "program_runner_unavailable",
  });
}
