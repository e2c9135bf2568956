import { addCounts, addDuration, type Durations } from "./durations.ts";

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

/** No requests, to which others are added. */
export function noRequests(): EndedRequests {
  return { errors: 0, ms: 0, durations: {}, firstTokens: {} };
}

/** How a request has ended. Milliseconds. */
export interface RequestOutcome {
  isError: boolean;
  ms: number;
  /** The time until the first token; undefined if there was none. */
  firstTokenMs: number | undefined;
}

/** Counts a request that has ended. */
export function countOutcome(sum: EndedRequests, { isError, ms, firstTokenMs }: RequestOutcome): void {
  if (isError) {
    sum.errors += 1;
    return;
  }
  sum.ms += ms;
  addDuration(sum.durations, ms);
  if (firstTokenMs !== undefined) addDuration(sum.firstTokens, firstTokenMs);
}

/** Adds counts of ended requests to others. Gives `sum`, which it changes. */
export function addEnded<Sum extends EndedRequests>(sum: Sum, other: Readonly<EndedRequests>): Sum {
  sum.errors += other.errors;
  sum.ms += other.ms;
  addCounts(sum.durations, other.durations);
  addCounts(sum.firstTokens, other.firstTokens);
  return sum;
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
  readonly #entries = new Map<string, UsageEntry>();

  get isEmpty(): boolean {
    return this.#entries.size === 0;
  }

  add(entry: UsageEntry): void {
    const { kind = "completions", model, units, ended } = entry;
    const sum = this.#entryOf(kind, model);
    sum.requests += entry.requests;
    sum.input += entry.input;
    sum.cached += entry.cached;
    sum.output += entry.output;
    sum.cost += entry.cost;
    if (units !== undefined) sum.units = (sum.units ?? 0) + units;
    if (!ended) return;
    sum.ended ??= noRequests();
    addEnded(sum.ended, ended);
  }

  /** Adds the end of a request, and none of its usage. */
  addOutcome(kind: UsageKind, model: string, outcome: RequestOutcome): void {
    const sum = this.#entryOf(kind, model);
    sum.ended ??= noRequests();
    countOutcome(sum.ended, outcome);
  }

  /** Gives the sums, and begins anew. */
  take(): UsageEntry[] {
    const taken = [...this.#entries.values()];
    this.#entries.clear();
    return taken;
  }

  #entryOf(kind: UsageKind, model: string): UsageEntry {
    const name = `${kind}\n${model}`;
    const known = this.#entries.get(name);
    if (known) return known;
    if (this.#entries.size >= MAX_MODELS && model !== OTHER_MODELS) return this.#entryOf(kind, OTHER_MODELS);
    const made = { kind, model, requests: 0, input: 0, cached: 0, output: 0, cost: 0 };
    this.#entries.set(name, made);
    return made;
  }
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
