/** The reason why a tool could not do the call. The message is for the model. */
export class ToolError extends Error {
  override name = "ToolError";
}

/** The error of a call in a session that does not exist any more. The caller must know it from other errors. */
export class GoneSession extends ToolError {
  constructor() {
    super("The session was ended.");
  }
}
