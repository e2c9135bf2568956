import { dialectOfOwner } from "@responses-edge/engines/dialects/all";
import { lacksParserOfCalls, type ParserKind, parserFlags } from "@responses-edge/engines/missing-parsers";
import { GPT_OSS, type ModelServerConfig } from "@responses-edge/engines/settings";
import { THOUGHTS } from "@responses-edge/turn/contract/model-markup/families";
import { loadConfig, type TextVariables } from "../../src/config/index.ts";
import { ask } from "./model-server-request.ts";
import type { FoundServer } from "./model-servers.ts";

/**
 * The parsers that model servers run without, as `check` finds out: it asks the first model of each for one token, with
 * a tool. Models that Harmony speaks to (gpt-oss) need no parser.
 */

const PARSERS: Readonly<Record<ParserKind, string>> = { reasoning: "reasoning", tool_calls: "tool calls" };

/** A sentence for each parser that one of the servers lacks. `found`: the servers as they answered. Does not throw. */
export async function parserAdvice(variables: TextVariables, found: readonly FoundServer[]): Promise<string[]> {
  const { modelServers, modelEngines } = loadConfig(variables);
  const advice = await Promise.all(
    modelServers.map(async (server) => {
      const { id: model, owned_by: owner } = found.find(({ name }) => name === server.name)?.cards?.[0] ?? {};
      if (typeof model !== "string" || modelEngines[model] === "harmony" || GPT_OSS.test(model)) return [];
      const dialect = server.dialect ?? dialectOfOwner(String(owner))?.name;
      const kinds = await missingParsers(server, model).catch((): ParserKind[] => []);
      return kinds.map((kind) => {
        const [flags] = parserFlags(dialect, [kind]);
        const remedy = flags === undefined ? "" : ` Start it with ${flags}.`;
        return `${server.name}: runs without a parser of ${PARSERS[kind]} for ${model}.${remedy}`;
      });
    }),
  );
  return advice.flat();
}

/** The parsers that a server lacks for a model, by two answers of one token. Throws where it does not answer. */
async function missingParsers(server: ModelServerConfig, model: string): Promise<ParserKind[]> {
  const missing: ParserKind[] = [];
  const asked = { model, messages: [{ role: "user", content: "Hello" }], max_tokens: 1, stream: false };
  const tool = { type: "function", function: { name: "nothing", parameters: { type: "object", properties: {} } } };
  const refused = await (
    await ask(server, "/chat/completions", { ...asked, tools: [tool], tool_choice: "auto" })
  ).text();
  if (lacksParserOfCalls(refused)) missing.push("tool_calls");
  const answer = (await (await ask(server, "/chat/completions", asked)).json()) as {
    choices?: { message?: { content?: unknown } }[];
  };
  const content = answer.choices?.[0]?.message?.content;
  const begins =
    typeof content === "string" && [...THOUGHTS.keys()].some((mark) => content.trimStart().startsWith(mark));
  if (begins) missing.push("reasoning");
  return missing;
}
