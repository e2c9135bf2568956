import { hammer, type Request } from "./load.ts";
import { cpuSeconds } from "./processes.ts";
import { ask, type Message, type Question, responseIdIn, type Scale, type Target, type TargetKind } from "./targets.ts";

/** Conversations of stored turns, and the cost of requests. */

/** Ends the name of a target that stores its responses. */
export const STORED = ", stored";
export const isStored = ({ name }: TargetKind) => name.endsWith(STORED);

/** A chain of stored turns: the id of each, and their messages. */
export interface Chain {
  ids: string[];
  history: Message[];
}

export const CHAIN_MODEL = "simulator?words=20&chunk=16";

export const CHAIN_USER: Message = {
  role: "user",
  content: "A sentence of some length, as people write them, to which the model has an answer.",
};

/** Makes a chain of `length` turns by a target's own store. It ends before, where it takes longer than `patienceMs`. */
export async function buildChain(target: Target, length: number, patienceMs = 60_000): Promise<Chain> {
  const question: Question = { model: CHAIN_MODEL, stream: false, history: [CHAIN_USER] };
  const { ids, history }: Chain = { ids: [], history: [] };
  for (const begun = performance.now(); ids.length < length && performance.now() - begun < patienceMs; ) {
    const text = await ask(target.port, target.request({ ...question, previous: ids.at(-1) }));
    ids.push(responseIdIn(text));
    history.push(CHAIN_USER, { role: "assistant", content: /"text": ?"([^"]*)"/.exec(text)?.[1] ?? "" });
  }
  return { ids, history };
}

/** The messages of the first `turns` turns. */
export const messagesOf = ({ history }: Chain, turns: number): Message[] => history.slice(0, 2 * turns);

/** Repeats requests after a warm-up. Gives the CPU of the target's process for one, in microseconds. */
export async function load(
  { port, pid }: Target,
  request: Request | readonly Request[],
  clients: number,
  { warmUpMs, windowMs }: Scale,
) {
  await hammer(port, request, { clients, durationMs: warmUpMs });
  const before = cpuSeconds(pid);
  const { samples, seconds } = await hammer(port, request, { clients, durationMs: windowMs });
  return { samples, seconds, micros: ((cpuSeconds(pid) - before) * 1e6) / samples.length };
}
