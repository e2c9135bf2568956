/** Why a tool could not do what it was asked; the message is for the model. */
export class ToolError extends Error {
  override name = "ToolError";
}
