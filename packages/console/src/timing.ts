import type { ResponseTiming } from "../api-types.d.ts";
import { duration } from "./format.ts";
import type { ApiObject } from "./json.ts";

/** The times of a response. All of them are milliseconds, since the server accepted the request. */
export type Timing = ResponseTiming;

export type TimedRound = Timing["rounds"][number];

/** A part of the time. */
export interface Part {
  /** Milliseconds. */
  ms: number;
  inWords: string;
}

/** Shorter parts are not worth a word: this share of the whole. */
const LEAST_SHARE = 0.05;

/** The display name of a call's tool. */
export function callName({ name, type, server_label: server }: ApiObject): string {
  const tool =
    name ??
    String(type)
      .replace(/_call$/, "")
      .replaceAll("_", " ");
  return server ? `${server}: ${tool}` : tool;
}

/** Calls of the client's own tools end when they are written: the client runs them. */
const OF_CLIENT = ["function_call", "custom_tool_call", "computer_call", "local_shell_call"];

/** Tells whether an item is the call of a tool that the server runs. */
export function isRun({ type }: ApiObject) {
  return String(type).endsWith("_call") && !OF_CLIENT.includes(type);
}

/**
 * The parts of a response's time, the longest first. Each millisecond is in one of them.
 * @param output the items of the response
 */
export function partsOf(
  { waited_ms: waited, rounds, items, settled_ms: settled }: Timing,
  output: readonly ApiObject[],
) {
  const parts: Map<string, number> = new Map();
  let now = 0;
  const until = (end: number, inWords: string) => {
    if (end > now) parts.set(inWords, (parts.get(inWords) ?? 0) + end - now);
    now = Math.max(now, end);
  };
  const times = new Map(items.map((item) => [item.id, item]));
  /** The time without a round: that of the tools that ran in it, and then of the gateway. */
  const without = (end: number, otherwise: string) => {
    const calls = output.filter((item) => {
      const time = times.get(item.id);
      return time !== undefined && isRun(item) && time.ended_ms > now && time.began_ms < end;
    });
    const last = Math.max(0, ...calls.map(({ id }) => times.get(id)?.ended_ms ?? 0));
    if (calls.length > 0) until(Math.min(end, last), `ran ${[...new Set(calls.map(callName))].join(", ")}`);
    until(end, otherwise);
  };
  until(waited, "waited for an earlier turn of its conversation");
  for (const round of rounds) {
    const { began_ms: began, queued_ms: queued, first_token_ms: first, ended_ms: ended, server, purpose } = round;
    const who = server ?? "the model server";
    without(began, round === rounds[0] ? "prepared the prompt" : "worked between two rounds");
    until(began + queued, "waited in the queue, because the model servers were busy");
    until(first ?? ended, `${who} worked on the prompt, until the first token`);
    until(ended, purpose === "summary" ? `${who} summarised the conversation` : `${who} wrote the answer`);
  }
  without(settled, "ended the response, after the last round");
  return [...parts].map(([inWords, ms]): Part => ({ ms, inWords })).sort((one, other) => other.ms - one.ms);
}

/** Where the time went: the longest part as a sentence, and the others that are worth a word. */
export function whereTimeWent(timing: Timing, output: readonly ApiObject[]): { most: string; others: string[] } {
  const [longest, ...others] = partsOf(timing, output);
  const inAll = duration(timing.settled_ms);
  return {
    most: longest ? `${duration(longest.ms)} of ${inAll}: ${longest.inWords}.` : `It took ${inAll}.`,
    others: others
      .filter(({ ms }) => ms >= LEAST_SHARE * timing.settled_ms)
      .map(({ ms, inWords }) => `${duration(ms)}: ${inWords}`),
  };
}
