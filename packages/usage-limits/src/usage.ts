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
}

/** A usage, with its time and its key. */
export interface UsageRow extends UsageEntry {
  /** The beginning of its hour, Unix milliseconds. */
  start: number;
  key: string;
}

/** Entries with the same key are added up. */
export function usageKey({ kind = "completions", model }: UsageEntry): string {
  return `${kind}\n${model}`;
}

export function addUsage(a: UsageEntry, b: UsageEntry): UsageEntry {
  return {
    ...a,
    requests: a.requests + b.requests,
    input: a.input + b.input,
    cached: a.cached + b.cached,
    output: a.output + b.output,
    ...((a.units ?? b.units) !== undefined && { units: (a.units ?? 0) + (b.units ?? 0) }),
    cost: a.cost + b.cost,
  };
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
