import type { Prompt } from "../../contract/engine.ts";
import { type ClientTool, ClientTools, clientToolsIn } from "../../protocol/client-tools.ts";
import type { CreateRequest } from "../../protocol/create-request.ts";
import { invalidRequest } from "../../protocol/errors.ts";
import type { Tool } from "../../protocol/tools.ts";
import { formatPath } from "../../protocol/validation.ts";
import { GrammarFault } from "./faults.ts";
import { placeOf, readGrammar } from "./grammar.ts";
import type { Rules } from "./lark.ts";

/** The grammars of a request's custom tools, and which of them bind what a model writes. */

/** Throws the 400 of a grammar that is none, which names its field, line and column. */
export function refuseBrokenGrammars({ tools, input }: CreateRequest): void {
  refuseThoseOf(tools ?? [], ["tools"]);
  if (!Array.isArray(input)) return;
  for (const [index, item] of input.entries()) {
    if (item.type !== "additional_tools" && item.type !== "tool_search_output") continue;
    refuseThoseOf(item.tools, ["input", index, "tools"]);
  }
}

function refuseThoseOf(tools: readonly Tool[], path: (string | number)[]): void {
  for (const { tool, path: own } of clientToolsIn(tools)) {
    if (tool.type !== "custom" || tool.format.type !== "grammar") continue;
    try {
      readGrammar(tool.format);
    } catch (error) {
      if (!(error instanceof GrammarFault)) throw error;
      const field = formatPath([...path, ...own.slice(0, -1), "format", "definition"]);
      const { line, column } = placeOf(tool.format.definition, error.at);
      const language = tool.format.syntax === "lark" ? "Lark grammar" : "regular expression";
      throw invalidRequest(
        field,
        `Invalid '${field}': this is no ${language}: ${error.message} (line ${line}, column ${column}).`,
      );
    }
  }
}

/** The rules to which a tool's input can be bound, if it has some. */
export function rulesOf(tool: ClientTool | undefined): Rules | undefined {
  if (tool?.tool.type !== "custom" || tool.tool.format.type !== "grammar") return undefined;
  try {
    const reading = readGrammar(tool.tool.format);
    return "beyond" in reading ? undefined : reading;
  } catch (error) {
    // A tool of an earlier turn's, whose request was not checked by this version.
    if (error instanceof GrammarFault) return undefined;
    throw error;
  }
}

/** Whether the grammar of some custom tool binds what the model may write. */
export function bindsInputs({ request, freeInputs }: Pick<Prompt, "request" | "freeInputs">): boolean {
  if (freeInputs) return false;
  return ClientTools.of(request.tools)
    .offered(request.tool_choice)
    .some((tool) => rulesOf(tool) !== undefined);
}
