import { countIn, countPath } from "@responses-edge/engines/chat/counts";
import { familyNamed } from "@responses-edge/engines/chat/template-families";
import type { Dialect } from "@responses-edge/engines/dialects/dialect";
import { lacksParserOfCalls } from "@responses-edge/engines/missing-parsers";
import { GPT_OSS, type ModelServerConfig } from "@responses-edge/engines/settings";
import { ask, isKeyRefusal, type ModelCard } from "./model-server-request.ts";

/**
 * The abilities of a model's chat template, as its server shows them: it counts prompts that differ in the ability alone. It
 * generates nothing.
 */

/** The number of models of a server that are told of one by one. */
const MAX_TOLD = 5;

/** The models of a server with their abilities, in words. `refusal`: the status with which it refuses the key that it was asked with. */
export interface ToldModels {
  words: string;
  refusal: number | undefined;
}

/** Asks a server for its models' abilities. Does not throw. */
export async function modelsInWords(
  server: ModelServerConfig,
  dialect: Dialect | undefined,
  cards: readonly ModelCard[],
): Promise<ToldModels> {
  const served = server.models && new Set(server.models.values());
  const own = cards.filter(({ id }) => typeof id === "string" && (served?.has(id) ?? true));
  let refusal: number | undefined;
  const told = await Promise.all(
    own.slice(0, MAX_TOLD).map(async (card) => {
      const counts = dialect?.counting ? await countsOf(server, dialect.counting, String(card.id)) : undefined;
      refusal ??= counts?.refusal;
      const traits = traitsOf(server, card, counts);
      return `${card.id}${traits.length > 0 ? ` (${traits.join(", ")})` : ""}`;
    }),
  );
  const more = own.length - told.length;
  return { words: [...told, ...(more > 0 ? [`and ${more} more`] : [])].join(", "), refusal };
}

function traitsOf({ engine }: ModelServerConfig, card: ModelCard, counts: Counts | undefined): string[] {
  const names = [card.id, card.root, card.parent].filter((name) => typeof name === "string");
  if (engine === "harmony" || names.some((name) => GPT_OSS.test(name))) return ["gpt-oss", "thinks", "calls functions"];
  const family = familyNamed(names)?.name;
  return [...(family === undefined ? [] : [family]), ...(counts ? countedTraits(counts) : [])];
}

function countedTraits({ plain, withTool, on, off, refusesTools }: Counts): string[] {
  if (plain === undefined) return [];
  return [
    ...(on !== undefined && off !== undefined && on !== off ? ["thinks"] : []),
    ...(refusesTools ? ["refuses functions"] : []),
    ...(withTool === undefined ? [] : [withTool === plain ? "its template has no functions" : "calls functions"]),
  ];
}

/** The counts of a short prompt: alone, with a tool, with thinking turned on, and off; undefined where there is none. */
interface Counts {
  plain: number | undefined;
  withTool: number | undefined;
  on: number | undefined;
  off: number | undefined;
  refusesTools: boolean;
  refusal: number | undefined;
}

const MESSAGES = [{ role: "user", content: "Hello" }];
const TOOL = { type: "function", function: { name: "nothing", parameters: { type: "object", properties: {} } } };

/** The variables that turn thinking on and off: a template ignores those that it does not read. */
function thinking(isOn: boolean): object {
  return { chat_template_kwargs: { enable_thinking: isOn, thinking: isOn } };
}

async function countsOf(
  server: ModelServerConfig,
  counting: NonNullable<Dialect["counting"]>,
  model: string,
): Promise<Counts> {
  let refusal: number | undefined;
  let refusesTools = false;
  const count = async (body: object) => {
    try {
      const answer = await ask(server, countPath(counting), { model, messages: MESSAGES, ...body });
      const text = await answer.text();
      if (answer.ok) return countIn(JSON.parse(text));
      // llama.cpp lists its models without a key.
      if (isKeyRefusal(answer.status)) refusal = answer.status;
      refusesTools ||= lacksParserOfCalls(text);
    } catch {
      // The count is unknown.
    }
    return undefined;
  };
  const bodies = [{}, { tools: [TOOL] }, thinking(true), thinking(false)];
  const [plain, withTool, on, off] = await Promise.all(bodies.map(count));
  return { plain, withTool, on, off, refusesTools, refusal };
}
