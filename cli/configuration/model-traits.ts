import { countIn, countPath } from "@responses-edge/engines/chat/counts";
import { familyNamed } from "@responses-edge/engines/chat/template-families";
import type { Dialect } from "@responses-edge/engines/dialects/dialect";
import { lacksParserOfCalls } from "@responses-edge/engines/missing-parsers";
import { GPT_OSS, type ModelServerConfig } from "@responses-edge/engines/settings";
import { ask, type ModelCard } from "./model-server-request.ts";

/**
 * The abilities of a model's chat template, as its server shows them: it counts prompts that differ in the ability alone. It
 * generates nothing.
 */

/** The number of models of a server that are told of one by one. */
const MAX_TOLD = 5;

/** The models of a server with their abilities, in words. Does not throw. */
export async function modelsInWords(
  server: ModelServerConfig,
  dialect: Dialect | undefined,
  cards: readonly ModelCard[],
): Promise<string> {
  const served = server.models && new Set(server.models.values());
  const own = cards.filter(({ id }) => typeof id === "string" && (served?.has(id) ?? true));
  const told = await Promise.all(
    own.slice(0, MAX_TOLD).map(async (card) => {
      const traits = await traitsOf(server, dialect, card);
      return `${card.id}${traits.length > 0 ? ` (${traits.join(", ")})` : ""}`;
    }),
  );
  const more = own.length - told.length;
  return [...told, ...(more > 0 ? [`and ${more} more`] : [])].join(", ");
}

async function traitsOf(server: ModelServerConfig, dialect: Dialect | undefined, card: ModelCard): Promise<string[]> {
  const { id: model, root, parent } = card;
  const names = [model, root, parent].filter((name) => typeof name === "string");
  const isHarmony = server.engine === "harmony" || names.some((name) => GPT_OSS.test(name));
  if (isHarmony) return ["gpt-oss", "thinks", "calls functions"];
  const family = familyNamed(names)?.name;
  const counted = dialect?.counting ? await countedTraits(server, dialect.counting, String(model)) : [];
  return [...(family === undefined ? [] : [family]), ...counted];
}

const MESSAGES = [{ role: "user", content: "Hello" }];
const TOOL = { type: "function", function: { name: "nothing", parameters: { type: "object", properties: {} } } };

/** The variables that turn thinking on and off: a template ignores those that it does not read. */
function thinking(isOn: boolean): object {
  return { chat_template_kwargs: { enable_thinking: isOn, thinking: isOn } };
}

async function countedTraits(
  server: ModelServerConfig,
  counting: NonNullable<Dialect["counting"]>,
  model: string,
): Promise<string[]> {
  const count = async (body: object) => {
    try {
      const answer = await ask(server, countPath(counting), { model, messages: MESSAGES, ...body });
      const text = await answer.text();
      return answer.ok ? countIn(JSON.parse(text)) : lacksParserOfCalls(text) ? "refused" : undefined;
    } catch {
      return undefined;
    }
  };
  const bodies = [{}, { tools: [TOOL] }, thinking(true), thinking(false)];
  const [plain, withTool, on, off] = await Promise.all(bodies.map(count));
  if (plain === undefined) return [];
  return [
    ...(on !== undefined && off !== undefined && on !== off ? ["thinks"] : []),
    ...(withTool === "refused" ? ["refuses functions"] : []),
    ...(withTool === plain ? ["its template has no functions"] : []),
    ...(typeof withTool === "number" && withTool !== plain ? ["calls functions"] : []),
  ];
}
