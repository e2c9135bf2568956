import { list } from "@responses-edge/bounded-io/schemas/collections";
import { z } from "zod";

/** The common parts of the schemas of client-side tools and of hosted tools. */

export const FUNCTION_NAME = /^[a-zA-Z0-9_-]+$/;
export const MAX_NAME_LENGTH = 128;
export const MAX_LABEL_LENGTH = 64;

/** The maximum of tools of a request, including those in namespaces, and of those in a choice. */
export const MAX_TOOLS = 1024;

/** Raises the issue of the value at `path` below a value: usually, that it requests an unsupported feature. */
export function refuse(
  context: z.RefinementCtx,
  path: (string | number)[],
  message: string,
  code = "unsupported_parameter",
): void {
  context.addIssue({ code: "custom", path, message, params: { code } });
}

/** The callers of a tool: the model itself (`direct`, the default), and the programs that it writes. */
export const allowedCallers = list(z.enum(["direct", "programmatic"]), { min: 1, max: 2 }).nullish();

/** Tells whether a tool of a request may be called in one of the two ways. */
export function mayBeCalled(tool: object, caller: "direct" | "programmatic"): boolean {
  const callers = "allowed_callers" in tool ? (tool.allowed_callers as readonly string[] | null | undefined) : null;
  return callers == null ? caller === "direct" : callers.includes(caller);
}

/**
 * The fields of a tool that tell how it is called. `async`: the model goes on after a call, and its output may come in
 * any later response.
 */
export const callerFields = {
  defer_loading: z.boolean().nullish(),
  allowed_callers: allowedCallers,
  async: z.boolean().nullish(),
};

type CallerFields = { [Name in keyof typeof callerFields]?: z.output<(typeof callerFields)[Name]> };

export function callerFieldsOf({ defer_loading, allowed_callers, async }: CallerFields) {
  return {
    ...(defer_loading != null && { defer_loading }),
    ...(allowed_callers != null && { allowed_callers }),
    ...(async != null && { async }),
  };
}

export const toolName = z.string().max(MAX_NAME_LENGTH, { abort: true }).regex(FUNCTION_NAME);
export const jsonObject = z.record(z.string(), z.unknown());

/** The name of an MCP server's tool. */
export const mcpToolName = z.string().min(1).max(256);
