import { parseResponseId, responseId, type TurnAddress } from "@responses-edge/responses-api/ids";
import type { InputItem } from "@responses-edge/responses-api/items/registry";
import type { UnstoredTurn } from "../api/transport.ts";
import type { PastSource, ReadPast } from "../assembly/assemble-turn.ts";
import { concatArrays, readHistory } from "../store/home/history.ts";
import { MAX_HISTORY_LENGTH } from "../store/objects/rpc.ts";

/**
 * Turns with `store: false`, only in the memory of their connection: of each lane the latest, with everything that it
 * continues. A dropped turn gives a 400 `previous_response_not_found`, after which clients send everything again.
 * Lengths are UTF-16 units of JSON text.
 */

/** The longest total of a connection's turns. A single turn has the limit of a stored history. */
const MAX_CONNECTION_LENGTH = 16 * 1024 * 1024;

/** The longest total of all connections of this process, which has 128 MB for everything. */
const MAX_PROCESS_LENGTH = 32 * 1024 * 1024;

interface KeptTurn {
  id: string;
  lane: string | undefined;
  tenant: string;
  drop(): void;
  /** The stored turn that the items follow, if there is one. It is read from its home. */
  base: TurnAddress | null;
  /** Inputs and outputs, oldest first, and the raw messages behind them, each the JSON text of an array. */
  items: readonly string[];
  messages: readonly string[];
  length: number;
}

/** The history of a create, and the keeper of its own turn. */
export interface Continuation extends PastSource {
  /** True if its parent is one of the connection's turns rather than a stored one. */
  readonly isUnstored: boolean;
  keep(turn: UnstoredTurn): void;
}

/** All turns that are kept in this process, oldest first. */
const everything = new Set<KeptTurn>();

export class KeptTurns {
  readonly #tenant: string;
  /** Oldest first. */
  readonly #byLane = new Map<string | undefined, KeptTurn>();

  constructor(tenant: string) {
    this.#tenant = tenant;
  }

  /**
   * The history of a create in a lane. `previous` is the response that it names, as the client sent it. Turns that are
   * not kept here are looked up in `homes`.
   */
  continuation(lane: string | undefined, previous: unknown, homes: PastSource): Continuation {
    const parent = this.#find(previous);
    const stored = typeof previous === "string" ? (parseResponseId(previous) ?? null) : null;
    return {
      isUnstored: parent !== undefined,
      past: (input, address) => (parent ? readPast(parent, input, homes) : homes.past(input, address)),
      keep: (turn) => this.#keep(turn, lane, parent ?? { base: stored, items: [], messages: [] }),
    };
  }

  /** A continuation in this lane has failed: its client sends everything again. A turn of another lane stays. */
  evict(lane: string | undefined, previous: unknown): void {
    const turn = this.#byLane.get(lane);
    if (turn && turn.id === previous) this.#drop(turn);
  }

  /** Drops all turns: nothing can be continued any more. */
  clear(): void {
    for (const turn of [...this.#byLane.values()]) this.#drop(turn);
  }

  #find(id: unknown): KeptTurn | undefined {
    return this.#byLane.values().find((turn) => turn.id === id);
  }

  #keep(
    { address, input, output, messages }: UnstoredTurn,
    lane: string | undefined,
    parent: Pick<KeptTurn, "base" | "items" | "messages">,
  ): void {
    const before = this.#byLane.get(lane);
    if (before) this.#drop(before);
    const items = [...parent.items, input, output];
    const raw = messages === null ? parent.messages : [...parent.messages, messages];
    const length = [...items, ...raw].reduce((sum, text) => sum + text.length, 0);
    if (length > MAX_HISTORY_LENGTH) return;
    const turn: KeptTurn = {
      id: responseId(address),
      lane,
      tenant: this.#tenant,
      drop: () => this.#drop(turn),
      base: parent.base,
      items,
      messages: raw,
      length,
    };
    this.#byLane.set(lane, turn);
    everything.add(turn);
    while (lengthOf(this.#byLane.values()) > MAX_CONNECTION_LENGTH) this.#byLane.values().next().value?.drop();
    while (lengthOf(everything) > MAX_PROCESS_LENGTH) oldestOfLargestTenant()?.drop();
  }

  #drop(turn: KeptTurn): void {
    this.#byLane.delete(turn.lane);
    everything.delete(turn);
  }
}

/** The turn that is dropped when the process is full. No tenant loses a turn to another tenant that keeps more. */
function oldestOfLargestTenant(): KeptTurn | undefined {
  const tenants = [...Map.groupBy(everything, ({ tenant }) => tenant).values()];
  return tenants.toSorted((a, b) => lengthOf(b) - lengthOf(a))[0]?.[0];
}

function lengthOf(turns: Iterable<KeptTurn>): number {
  let sum = 0;
  for (const { length } of turns) sum += length;
  return sum;
}

/** The items of a kept turn with all earlier ones, after those of the stored turn at their beginning. */
async function readPast(
  { base, items, messages }: KeptTurn,
  input: readonly InputItem[],
  homes: PastSource,
): Promise<ReadPast> {
  const before = await homes.past(input, base);
  const { history, replays, length } = readHistory({ items: concatArrays(items), messages: concatArrays(messages) });
  return {
    history: [...before.history, ...history],
    replays: [...before.replays, ...replays],
    input: before.input,
    length: before.length + length,
  };
}
