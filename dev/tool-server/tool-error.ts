/** The reason why a tool could not do the call. The message is for the model. */
export class ToolError extends Error {
  override name = "ToolError";
}
