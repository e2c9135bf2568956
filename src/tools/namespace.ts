import type { ToolDescription, ToolNamespace } from "../contract/engine.ts";

/** The tools of a Harmony namespace as functions, for models that know no namespaces: `browser_search`. */
export function asFunctions({ name, tools }: ToolNamespace): ToolDescription[] {
  return tools.map((tool) => ({ ...tool, name: `${name}_${tool.name}` }));
}
