import { addDurations, type Durations } from "./durations.ts";

/** Usage, by its kind, and its cost. */

/** The kinds of usage, as OpenAI distinguishes them (openai 7.59 `admin.organization.usage`). */
export const USAGE_KINDS = [
  ...["completions", "embeddings", "images", "moderations", "decisions"],
  ...["audio_transcriptions", "code_interpreter_sessions", "file_searches", "web_searches"],
  "vector_stores",
] as const;
export type UsageKind = (typeof USAGE_KINDS)[number];

/** The usage of one kind and model since the last report. */
export interface UsageEntry {
  /** Absent: of completions. */
  kind?: UsageKind;
  /** The model; for calls of a tool, the tool. */
  model: string;
  /** Turns, or requests to a model. */
  requests: number;
  input: number;
  cached: number;
  output: number;
  /** Images, sessions, calls or seconds: the unit of its kind beside tokens. */
  units?: number;
  /** Millionths of a dollar. */
  cost: number;
  /** The requests of this kind that have ended, also those that have used nothing. */
  ended?: EndedRequests;
}

/** Requests that have ended. */
export interface EndedRequests {
  /** Those that ended with an error. Their durations do not count. */
  errors: number;
  /** The sum of all durations. Milliseconds. */
  ms: number;
  durations: Durations;
  /** The times until the first token. */
  firstTokens: Durations;
}

export const NO_REQUESTS: Readonly<EndedRequests> = { errors: 0, ms: 0, durations: {}, firstTokens: {} };

/** Adds two counts of ended requests up. */
export function addEnded(one: EndedRequests, other: EndedRequests): EndedRequests {
  return {
    errors: one.errors + other.errors,
    ms: one.ms + other.ms,
    durations: addDurations(one.durations, other.durations),
    firstTokens: addDurations(one.firstTokens, other.firstTokens),
  };
}

/** A usage, with its time and its key. */
export interface UsageRow extends UsageEntry {
  /** The beginning of its hour, Unix milliseconds. */
  start: number;
  key: string;
}

/** Most models of each kind in one sum. Clients may invent any number of names. */
const MAX_MODELS = 1_000;

/** The name of all other models. */
export const OTHER_MODELS = "other";

/** Usage that adds up until it is taken: one entry for each kind and model. */
export class UsageSums {
  readonly #entries = new Map<string, OwnEntry>();

  get isEmpty(): boolean {
    return this.#entries.size === 0;
  }

  add(entry: UsageEntry): void {
    const { kind = "completions", model } = entry;
    const key = `${kind}\n${model}`;
    const before = this.#entries.get(key);
    if (before) addTo(before, entry);
    else if (this.#entries.size < MAX_MODELS || model === OTHER_MODELS) this.#entries.set(key, ownCopy(entry));
    else this.add({ ...entry, model: OTHER_MODELS });
  }

  /** Gives the sums, and begins anew. */
  take(): UsageEntry[] {
    const taken = [...this.#entries.values()];
    this.#entries.clear();
    return taken;
  }
}

/** An entry to which others are added, in place: each request adds its own. */
type OwnEntry = UsageEntry & {
  ended?: { errors: number; ms: number; durations: Record<string, number>; firstTokens: Record<string, number> };
};

function ownCopy(entry: UsageEntry): OwnEntry {
  const { ended } = entry;
  return {
    ...entry,
    ...(ended && {
      ended: { ...ended, durations: { ...ended.durations }, firstTokens: { ...ended.firstTokens } },
    }),
  };
}

function addTo(sum: OwnEntry, entry: UsageEntry): void {
  sum.requests += entry.requests;
  sum.input += entry.input;
  sum.cached += entry.cached;
  sum.output += entry.output;
  sum.cost += entry.cost;
  if (entry.units !== undefined) sum.units = (sum.units ?? 0) + entry.units;
  const { ended } = entry;
  if (!ended) return;
  sum.ended ??= { errors: 0, ms: 0, durations: {}, firstTokens: {} };
  sum.ended.errors += ended.errors;
  sum.ended.ms += ended.ms;
  addCounts(sum.ended.durations, ended.durations);
  addCounts(sum.ended.firstTokens, ended.firstTokens);
}

function addCounts(sum: Record<string, number>, counts: Durations): void {
  for (const bucket in counts) sum[bucket] = (sum[bucket] ?? 0) + (counts[bucket] ?? 0);
}

/** The tokens and the cost of some entries, as limits count them. */
export function usedIn(usage: readonly UsageEntry[]): { tokens: number; cost: number } {
  const sum = (of: (entry: UsageEntry) => number) => usage.reduce((total, entry) => total + of(entry), 0);
  return { tokens: sum(({ input, output }) => input + output), cost: sum(({ cost }) => cost) };
}

/** Prices of a model: dollars per million tokens, and dollars per unit (an image, a session, a call …). */
export interface ModelPrice {
  input: number;
  /** Default: the price of input. */
  cached_input?: number | undefined;
  output: number;
  unit?: number | undefined;
}

export type Prices = Readonly<Record<string, ModelPrice>>;

/** The cost of the usage of a model or a tool, in millionths of a dollar; nothing without a price. */
export function costOf(
  model: string,
  { input, cached, output, units = 0 }: { input: number; cached: number; output: number; units?: number },
  prices: Prices,
): number {
  const price = Object.hasOwn(prices, model) ? prices[model] : prices["*"];
  if (!price) return 0;
  const ofInput = Math.max(0, input - cached) * price.input + cached * (price.cached_input ?? price.input);
  return ofInput + output * price.output + units * (price.unit ?? 0) * 1e6;
}
