import { isJsonObject, type JsonObject } from "./json.ts";
import { isServedType } from "./tools.ts";

/**
 * Tools of a type that this server does not have. They are refused, unless the operator lets them be dropped
 * (`UNKNOWN_TOOLS`): some clients cannot help sending them.
 */

/** Types of the body's tools that are not served, each once. */
export function unknownToolTypes(body: unknown): string[] {
  const types = new Set<string>();
  for (const tools of toolLists(body)) for (const tool of tools) if (isUnknown(tool)) types.add(tool.type);
  return [...types];
}

/** The body without them. */
export function withoutUnknownTools(body: unknown): unknown {
  if (!isJsonObject(body) || unknownToolTypes(body).length === 0) return body;
  const { tools, input } = body;
  return {
    ...body,
    ...(Array.isArray(tools) && { tools: known(tools) }),
    ...(Array.isArray(input) && {
      input: input.map((item: unknown) => (bringsTools(item) ? { ...item, tools: known(item.tools) } : item)),
    }),
  };
}

function* toolLists(body: unknown): Generator<unknown[]> {
  if (!isJsonObject(body)) return;
  if (Array.isArray(body.tools)) yield body.tools;
  if (Array.isArray(body.input)) for (const item of body.input) if (bringsTools(item)) yield item.tools;
}

function bringsTools(item: unknown): item is JsonObject & { tools: unknown[] } {
  const isOfType = isJsonObject(item) && (item.type === "additional_tools" || item.type === "tool_search_output");
  return isOfType && Array.isArray(item.tools);
}

function known(tools: readonly unknown[]): unknown[] {
  return tools.filter((tool) => !isUnknown(tool));
}

/** Whether a value is a tool by its looks, but of no type that is known here. */
function isUnknown(tool: unknown): tool is { type: string } {
  return isJsonObject(tool) && typeof tool.type === "string" && !isServedType(tool.type);
}
