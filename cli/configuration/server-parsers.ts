import { DIALECTS } from "@responses-edge/engines/dialects/all";
import type { DialectName } from "@responses-edge/engines/dialects/dialect";
import { lacksParserOfCalls, type ParserKind, parserFlags } from "@responses-edge/engines/missing-parsers";
import type { ModelServerConfig } from "@responses-edge/engines/settings";
import { THOUGHTS } from "@responses-edge/turn/contract/model-markup/families";
import { loadConfig, type TextVariables } from "../../src/config/index.ts";

/**
 * The parsers that model servers run without, as `check` finds out: it asks the first model of each for one token, with
 * a tool. Models that Harmony speaks to (gpt-oss) need no parser.
 */

/** The time that a model server has to answer. Milliseconds. */
const TIMEOUT_MS = 5_000;

const PARSERS: Readonly<Record<ParserKind, string>> = { reasoning: "reasoning", tool_calls: "tool calls" };

/** A sentence for each parser that one of the servers of these names lacks. Does not throw. */
export async function parserAdvice(variables: TextVariables, names: readonly string[]): Promise<string[]> {
  const { modelServers, modelEngines } = loadConfig(variables);
  const found = await Promise.all(
    modelServers.map(async (server) => {
      if (!names.includes(server.name)) return [];
      const model = await firstModel(server).catch(() => undefined);
      const isHarmony = model && (modelEngines[model.id] === "harmony" || /gpt-oss/i.test(model.id));
      if (!model || isHarmony) return [];
      const dialect = server.dialect ?? ownerDialect(model.owner);
      const kinds = await missingParsers(server, model.id).catch((): ParserKind[] => []);
      return kinds.map((kind) => {
        const [flags] = parserFlags(dialect, [kind]);
        const remedy = flags === undefined ? "" : ` Start it with ${flags}.`;
        return `${server.name}: runs without a parser of ${PARSERS[kind]} for ${model.id}.${remedy}`;
      });
    }),
  );
  return found.flat();
}

function ownerDialect(owner: unknown): DialectName | undefined {
  return Object.values(DIALECTS).find((dialect) => dialect.owner !== undefined && dialect.owner === owner)?.name;
}

async function firstModel(server: ModelServerConfig): Promise<{ id: string; owner: unknown } | undefined> {
  const { data } = (await (await ask(server, "/models")).json()) as { data?: { id?: unknown; owned_by?: unknown }[] };
  const card = data?.[0];
  return typeof card?.id === "string" ? { id: card.id, owner: card.owned_by } : undefined;
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

function ask({ baseUrl, apiKey, headers }: ModelServerConfig, path: string, body?: object): Promise<Response> {
  return fetch(baseUrl + path, {
    method: body ? "POST" : "GET",
    headers: {
      ...headers,
      ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }),
      ...(body && { "content-type": "application/json" }),
    },
    ...(body && { body: JSON.stringify(body) }),
    redirect: "manual",
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
}
