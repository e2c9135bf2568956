import type { ResponseTiming } from "@responses-edge/responses-api/response";
import { type Measurements, type ModelCall, NO_TOKENS } from "./contract/measurements.ts";

/**
 * The times of a turn: kept with it as one short text, in the row that is written anyway, and shown as the field `timing`
 * (`include`).
 */

/** When an item was added, and when it was done. Unix milliseconds. */
export type ItemTimes = [began: number, ended?: number];

/** Most rounds and items whose times are kept, with the number of the rest. */
const MAX_ROUNDS = 64;
export const MAX_TIMED_ITEMS = 256;

const PURPOSES = ["round", "take_up", "summary"] as const satisfies ModelCall["purpose"][];

/**
 * The kept form, in milliseconds from acceptance, with the names in a list of their own. A round: the purpose, the indexes of
 * server, model and error (-1 for none; a model of -1 is the response's), its beginning, first token (-1 for none) and end, the
 * time in a queue, attempts, and tokens. Items: beginning and duration of each.
 */
type Kept = [
  acceptedAt: number,
  waited: number,
  settled: number,
  names: string[],
  rounds: number[][],
  items: number[],
  omittedRounds: number,
  omittedItems: number,
  upstreamError?: string,
];

/** A model call with those before it that were repeated because they gave nothing. */
interface Round extends ModelCall {
  /** The beginning of the first of them. */
  begunAt: number;
}

/** The facts of a turn that has ended. */
export interface TimedTurn {
  /** Unix milliseconds. */
  acceptedAt: number;
  settledAt: number;
  /** The model server's name of the response's model. */
  model: string;
  measured: Pick<Measurements, "modelCalls" | "omittedCalls" | "waitedMs" | "upstreamError">;
  state: { readonly itemTimes: readonly ItemTimes[]; readonly output: readonly unknown[] };
}

/** The times of a turn in the form that is kept: at most about 20,000 characters, and usually fewer than 100. */
export function keptTiming({ acceptedAt, settledAt, model, measured, state }: TimedTurn): string {
  const since = (at: number) => Math.max(0, Math.round(at - acceptedAt));
  const names: string[] = [];
  const nameIndex = (name: string | undefined) => {
    if (name === undefined) return -1;
    const index = names.indexOf(name);
    return index === -1 ? names.push(name) - 1 : index;
  };
  const rounds = roundsOf(measured.modelCalls);
  const kept: Kept = [
    acceptedAt,
    measured.waitedMs ?? 0,
    since(settledAt),
    names,
    rounds.slice(0, MAX_ROUNDS).map((round) => {
      const { input, cached, output } = round.tokens ?? NO_TOKENS;
      return [
        PURPOSES.indexOf(round.purpose),
        nameIndex(round.replica),
        nameIndex(round.model === model ? undefined : round.model),
        nameIndex(round.error),
        since(round.begunAt),
        round.firstChunkAt === undefined ? -1 : since(round.firstChunkAt),
        since(round.endedAt ?? settledAt),
        Math.round(round.queuedMs),
        round.attempts,
        ...[input, cached, output],
      ];
    }),
    state.itemTimes.flatMap(([began, ended = settledAt]) => [since(began), since(ended) - since(began)]),
    Math.max(0, rounds.length - MAX_ROUNDS) + measured.omittedCalls,
    state.output.length - state.itemTimes.length,
    ...(measured.upstreamError === undefined ? ([] as const) : ([measured.upstreamError] as const)),
  ];
  return JSON.stringify(kept);
}

/** Joins a call that gave nothing with the one that repeats it. */
function roundsOf(calls: readonly ModelCall[]): Round[] {
  const rounds: Round[] = [];
  for (const call of calls) {
    const last = rounds.at(-1);
    const isSame = last?.round === call.round && last.purpose === call.purpose && last.model === call.model;
    if (!last || !isSame || last.error === undefined || last.firstChunkAt !== undefined) rounds.push({ ...call });
    else {
      const { begunAt, attempts, queuedMs } = last;
      Object.assign(last, call, {
        begunAt,
        attempts: attempts + call.attempts,
        queuedMs: queuedMs + call.queuedMs,
      });
    }
  }
  return rounds;
}

/** A kept text; undefined if it is not one. An import may have any text. */
function readKept(text: string): Kept | undefined {
  try {
    const kept = JSON.parse(text) as Kept;
    const [acceptedAt, waited, settled, names, rounds, items, omittedRounds, omittedItems, error = ""] = kept;
    const numbers = [acceptedAt, waited, settled, ...rounds.flat(), ...items, omittedRounds, omittedItems];
    const areNumbers = numbers.every((each) => Number.isSafeInteger(each));
    const areTexts = [...names, error].every((each) => typeof each === "string");
    return areNumbers && areTexts && items.length % 2 === 0 ? kept : undefined;
  } catch {
    return undefined;
  }
}

/** Tells whether a text is one that `keptTiming` gives. */
export function isKeptTiming(text: string): boolean {
  return readKept(text) !== undefined;
}

/**
 * The times as clients get them; null for an unreadable text. `model` is the response's; `items` are the ids of its output
 * items, in their order.
 */
export function shownTiming(
  text: string,
  { model, items }: { model: string; items: readonly string[] },
): ResponseTiming | null {
  const kept = readKept(text);
  if (!kept) return null;
  const [acceptedAt, waited, settled, names, rounds, times, omittedRounds, omittedItems] = kept;
  const shown = rounds.map((round) => {
    const [purpose = 0, server = -1, asked = -1, error = -1, began = 0, first = -1, ended = 0, queued = 0, ...counts] =
      round;
    const [attempts = 0, input = 0, cached = 0, output = 0] = counts;
    return {
      server: names[server] ?? null,
      model: names[asked] ?? model,
      purpose: PURPOSES[purpose] ?? "round",
      began_ms: began,
      queued_ms: queued,
      first_token_ms: first < 0 ? null : first,
      ended_ms: ended,
      attempts,
      input_tokens: input,
      cached_tokens: cached,
      output_tokens: output,
      error: names[error] ?? null,
    };
  });
  return {
    accepted_at: acceptedAt,
    waited_ms: waited,
    queued_ms: shown.reduce((sum, { queued_ms }) => sum + queued_ms, 0),
    rounds: shown,
    items: items.slice(0, times.length / 2).map((id, index) => {
      const [began = 0, duration = 0] = times.slice(2 * index, 2 * index + 2);
      return { id, began_ms: began, ended_ms: began + duration };
    }),
    settled_ms: settled,
    ...(omittedRounds > 0 && { rounds_omitted: omittedRounds }),
    ...(omittedItems > 0 && { items_omitted: omittedItems }),
  };
}

/** A model server's own text of the last failure of its own in a turn, for the operator; undefined if there is none. */
export function upstreamErrorOf(text: string): string | undefined {
  return readKept(text)?.[8];
}

/** The kept text without what only the operator may see. Throws SyntaxError for a text that is not JSON. */
export function exportedTiming(text: string): string {
  return JSON.stringify((JSON.parse(text) as unknown[]).slice(0, 8));
}

/** Adds a model call to those of a turn, or its end to the call in progress. */
export function keepCall(calls: ModelCall[], call: ModelCall): void {
  const last = calls.at(-1);
  if (last?.begunAt === call.begunAt && last.round === call.round && last.endedAt === undefined) calls.pop();
  calls.push(call);
}

/** Notes that an item was added or, the second time, done. */
export function keepItemTime(times: ItemTimes[], [index, at]: [index: number, at: number]): void {
  const known = times[index];
  if (known) known[1] = at;
  else times[index] = [at];
}

/**
 * The model calls of a turn whose process died, perhaps more than once, from its log. Each one that was in progress has ended with its
 * process: at the last time before the next call that the log has.
 */
export function callsBefore({
  calls,
  itemTimes,
}: {
  calls: readonly ModelCall[];
  itemTimes: readonly ItemTimes[];
}): ModelCall[] {
  return calls.map((call, index) => {
    if (call.endedAt !== undefined) return call;
    const next = calls[index + 1]?.begunAt ?? Number.POSITIVE_INFINITY;
    const times = itemTimes.flat().filter((at) => at !== undefined && at <= next) as number[];
    return { ...call, endedAt: Math.max(call.firstChunkAt ?? call.begunAt, ...times), error: "server_restarted" };
  });
}
