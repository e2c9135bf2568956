import type { Prompt } from "@responses-edge/turn/contract/engine";
import type { Dialect } from "../dialects/dialect.ts";
import { knownCards } from "../model-lists.ts";
import type { ModelServer } from "../model-server.ts";
import { isBelieved, parserFactsOf } from "../parser-facts.ts";
import { countIn, countPath } from "./counts.ts";
import { familyNamed, probeBodies, type TemplateFamily, unnamedFamily } from "./template-families.ts";

/** The longest wait for the counts that show a family, in milliseconds. */
const PROBE_MS = 2_000;

/** The families of so many models of a server are remembered: adapters are loaded under the names that clients send. */
const MAX_FAMILIES = 256;

/**
 * The family of a prompt's chat template: by the names of its model, or by the counts of its server, which are asked for once in a
 * while. Undefined if nothing shows it. Rejects only with the reason of an aborted `signal`.
 */
export function familyOf(
  { model, request }: Prompt,
  dialect: Dialect,
  server: ModelServer,
  signal: AbortSignal,
): TemplateFamily | undefined | Promise<TemplateFamily | undefined> {
  const { families } = parserFactsOf(server.baseUrl);
  const known = families.get(model);
  if (known && isBelieved(known.at)) return known.family;
  const isFull = families.size >= MAX_FAMILIES && !known;
  const cards = knownCards(server) ?? [];
  const named = familyOfNames(model, namesIn(cards.find(({ id }) => id === model)));
  if (named) return remember(named);
  // Only such prompts depend on it.
  const isConcerned = request.tools != null || request.reasoning?.context === "all_turns";
  if (!isConcerned || isFull || dialect.counting === undefined) return undefined;
  return counted(server.config.models?.get(model) ?? model, dialect, server, signal).then(remember);

  function remember(family: TemplateFamily | undefined): TemplateFamily | undefined {
    if (!isFull) families.set(model, { family, at: Date.now() });
    return family;
  }
}

/** The families that names have shown, null for none: every request asks for it. */
const ofNames = new Map<string, TemplateFamily | null>();

function familyOfNames(model: string, others: readonly unknown[]): TemplateFamily | undefined {
  const key = `${model}\n${others.join("\n")}`;
  let family = ofNames.get(key);
  if (family === undefined) {
    family = familyNamed([model, ...others]) ?? null;
    if (ofNames.size >= MAX_FAMILIES) ofNames.clear();
    ofNames.set(key, family);
  }
  return family ?? undefined;
}

/** The names in a card, besides its own. */
function namesIn(card: Readonly<Record<string, unknown>> | undefined): unknown[] {
  return card ? [card.root, card.parent] : [];
}

/** The family by the counts of a server; undefined if it gives none. `model`: its own name of the model. */
async function counted(
  model: string,
  { counting }: Dialect,
  server: ModelServer,
  signal: AbortSignal,
): Promise<TemplateFamily | undefined> {
  if (counting === undefined) return undefined;
  const path = countPath(counting);
  const waiting = AbortSignal.any([signal, AbortSignal.timeout(PROBE_MS)]);
  try {
    const count = async (body: object) => countIn(await server.json(path, waiting, JSON.stringify(body)));
    const [plain, keeping] = await Promise.all(probeBodies(model).map(count));
    if (plain === undefined || keeping === undefined) return undefined;
    return unnamedFamily(keeping > plain);
  } catch {
    signal.throwIfAborted();
    return undefined;
  }
}
