import { MAX_CALL_LENGTH } from "../objects/rpc.ts";
import type { ForegroundTurn } from "./settlement.ts";

/**
 * Turns of this isolate that are stored in one home at about the same time share a call of it, and with that a commit, which is
 * the largest part of a stored turn's cost. A turn that comes while a call of its home is under way waits for the next one, which
 * takes all that have come. A home without a call under way is called at once.
 *
 * Each call is made by one of its turns' requests. The platform may end that request in the middle, and its promises never settle
 * then: after a time, each turn is stored by its own request. A repeated settlement is harmless.
 */

/** A longer turn is stored by a call of its own. UTF-16 units. */
const MAX_SHARED_LENGTH = 256 * 1024;

/** Most turns of one call: their texts fit into it. */
const MAX_TOGETHER = Math.min(32, Math.floor(MAX_CALL_LENGTH / MAX_SHARED_LENGTH));

/** How long a turn waits for the request that stores it. Milliseconds. */
const MAX_WAIT_MS = 2_000;

/** The end of a turn's wait: another request has stored it and gives its rows, or its own one is to store it, with others. */
type Step = { rows: number } | { others: readonly Waiting[] };

interface Waiting {
  turn: ForegroundTurn;
  proceed(step: Step): void;
}

/** The turns that wait for the call that is under way, by the tenant and the key of their home. */
const queues = new Map<string, Set<Waiting>>();

/**
 * Stores a turn with others of its home, and gives the rows that it took. `settle` calls the home, and gives the rows of each turn.
 * Rejects as it does.
 */
export async function settleInTurn(
  home: string,
  turn: ForegroundTurn,
  settle: (turns: readonly ForegroundTurn[]) => Promise<readonly number[]>,
): Promise<number> {
  const alone = async () => (await settle([turn]))[0] ?? 0;
  if (lengthOf(turn) > MAX_SHARED_LENGTH) return await alone();
  const queue = queues.get(home);
  const step = queue ? await untilCalled(home, queue, turn) : { others: [] };
  if ("rows" in step) return step.rows;
  const { others } = step;
  if (!queues.has(home)) queues.set(home, new Set());
  try {
    const [rows = 0, ...taken] = await settle([turn, ...others.map((each) => each.turn)]);
    for (const [index, { proceed }] of others.entries()) proceed({ rows: taken[index] ?? 0 });
    return rows;
  } catch (error) {
    // One of them may be the reason.
    for (const { proceed } of others) proceed({ others: [] });
    if (others.length === 0) throw error;
    return await alone();
  } finally {
    callNext(home);
  }
}

/** Waits while a call of the home is under way. After `MAX_WAIT_MS` its request is taken for ended. */
async function untilCalled(home: string, queue: Set<Waiting>, turn: ForegroundTurn): Promise<Step> {
  const { promise, resolve } = Promise.withResolvers<Step>();
  const waiting: Waiting = { turn, proceed: resolve };
  queue.add(waiting);
  const timer = setTimeout(() => {
    queue.delete(waiting);
    if (queues.get(home) === queue) queues.delete(home);
    resolve({ others: [] });
  }, MAX_WAIT_MS);
  const step = await promise;
  clearTimeout(timer);
  return step;
}

/** Has the turns that wait stored by the request of the first one. */
function callNext(home: string): void {
  const queue = queues.get(home);
  const [first, ...others] = [...(queue ?? [])].slice(0, MAX_TOGETHER);
  if (!queue || !first) {
    queues.delete(home);
    return;
  }
  for (const each of [first, ...others]) queue.delete(each);
  first.proceed({ others });
}

function lengthOf({ input, output, messages, response }: ForegroundTurn): number {
  return input.length + output.length + (messages?.length ?? 0) + (response?.length ?? 0);
}
