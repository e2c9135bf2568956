import { createHash } from "node:crypto";
import {
  ApiError,
  contextLengthExceeded,
  conversationNotFound,
  invalidRequest,
  notFound,
  previousResponseNotFound,
} from "@responses-edge/responses-api/errors";
import {
  newHome,
  newSharedHome,
  parseConversationId,
  parseItemId,
  responseId,
  TREE_NAMES,
  type TreeAddress,
  type TurnAddress,
  treeName,
  treeOf,
} from "@responses-edge/responses-api/ids";
import type { InputItem, Item } from "@responses-edge/responses-api/items/registry";
import type { PastSource, ReadPast } from "../../assembly/assemble-turn.ts";
import type { Env } from "../../env.ts";
import { otherWorkerOf, type Stub } from "../objects/objects.ts";
import { insufficientStorage, processState } from "../objects/process-state.ts";
import { homeUrl, isRetryable, MAX_HISTORY_LENGTH, unwrap } from "../objects/rpc.ts";
import { IS_SERVED } from "../objects/workers.ts";
import type { Chains } from "./chains.ts";
import { receiveHistory } from "./conversation-lock.ts";
import { EnteredConversation } from "./entered-conversation.ts";
import { historyTooLong, type ReadHistory, readHistory } from "./history.ts";
import { emptySnapshot, type ItemKey, type Snapshot } from "./history-reader.ts";
import type { ForegroundTurn, TurnToSettle } from "./settlement.ts";
import { settleInTurn } from "./settlement-queue.ts";

/** Most homes that one request may refer to. Each is an object that is woken; turns of one chain share a home. */
const MAX_HOMES = 256;

/** Homes that are asked at the same time. */
const CONCURRENT_HOMES = 16;

/** A tenant's homes, as the Worker sees them. An object's name is tenant + home, so that no other tenant's can be reached. */
export class HomeClient implements PastSource {
  protected readonly tenant: string;
  readonly #homes: Env["HOME"];
  /** Conversations that turns have entered, by ticket. */
  readonly #entered = new Map<string, EnteredConversation>();

  constructor({ HOME: homes }: Pick<Env, "HOME">, tenant: string) {
    this.tenant = tenant;
    this.#homes = homes;
  }

  /** A home, which is created by its first call. */
  home(key: string): Stub<"HOME"> {
    return this.#homes.getByName(this.tenant, key);
  }

  /** Asks a home for something that it stores. Gives `absent` if it does not exist, without creating it. */
  async ask<T, Absent>(home: string, absent: Absent, work: (home: Stub<"HOME">) => Promise<T>): Promise<T | Absent> {
    return (await this.#homes.mayExist(this.tenant, home)) ? work(this.home(home)) : absent;
  }

  /**
   * Enters a conversation: gives its history, and the function that leaves it. Until then no other turn can enter,
   * unless this Worker dies. Throws the 404 of a missing conversation, and the 409 and 429 of one that is in use.
   */
  async enterConversation(
    { id, home }: { id: string; home: string },
    ticket: string,
    waitMs: number,
  ): Promise<{ history: ReadHistory; release(): void }> {
    const enter = async () => {
      const known = this.#chainsOf(home)?.conversation.latest;
      const url = homeUrl({ kind: "conversation", id, ticket, waitMs, ...(known && { known: known.id }) });
      const headers = { upgrade: "websocket" };
      const response = await this.ask(home, null, (stub) => stub.fetch(url, { headers }));
      if (!response) throw conversationNotFound(id);
      const { webSocket: socket } = response;
      if (!socket) throw new ApiError(await response.json());
      const history = await receiveHistory(socket);
      if (history) return { socket, history, values: () => readHistory(history) };
      if (!known) throw new Error("The conversation's home has sent no history.");
      return { socket, history: known.texts, values: () => known.values() };
    };
    const entered = await EnteredConversation.by(enter, IS_SERVED);
    this.#entered.set(ticket, entered);
    const release = () => {
      this.#entered.delete(ticket);
      entered.release();
    };
    return { history: entered.values(), release };
  }

  /** The object that remembers an idempotency key. */
  idempotencyKey(key: string): Stub<"HOME"> {
    return this.home(`key:${createHash("sha256").update(key).digest("hex")}`);
  }

  /** Prepares a home for its first turn. Never rejects: the turn works without it, too. */
  async awaitTurn(home: string, createdAt: number): Promise<void> {
    try {
      await this.home(home).awaitTurn(createdAt);
    } catch {
      // The settlement reports the cause.
    }
  }

  /**
   * The fault of a home that failed to store something. The home gets no new trees, unless the client is at fault. The
   * 507 if the disk takes nothing new.
   */
  notTaken(home: string, error: unknown): unknown {
    if (error instanceof ApiError) {
      if (error.status >= 429) closeHome(this.tenant, home);
      return error;
    }
    closeHome(this.tenant, home);
    // The disk may be full by now. The platform says only that an object has failed.
    return processState.isDiskClosed && !isRetryable(error) ? insufficientStorage() : error;
  }

  /**
   * Stores a turn, and gives the rows that it took. A turn whose conversation's process has ended has entered it again,
   * unless the conversation has changed since. Throws the 409 of a turn that has lost its conversation.
   */
  async settle(home: string, { lease, ...turn }: TurnToSettle): Promise<number> {
    try {
      if (!lease) {
        const rows = await settleInTurn(`${this.tenant}:${home}`, turn, (turns) => this.#settleAll(home, turns));
        this.#chainsOf(home)?.tell(turn.turn);
        return rows;
      }
      const call = () => this.home(home).settle({ ...turn, lease });
      const entered = this.#entered.get(lease.token);
      return entered ? await entered.settle(call) : unwrap(await call());
    } catch (error) {
      throw this.notTaken(home, error);
    }
  }

  /** The histories in the memory of a home that lives in this process; undefined of another one. */
  #chainsOf(home: string): Chains | undefined {
    return this.#homes.living(this.tenant, home)?.chains;
  }

  async #settleAll(home: string, turns: readonly ForegroundTurn[]): Promise<readonly number[]> {
    const [turn, ...others] = turns;
    if (!turn || others.length > 0) return await this.home(home).settleTogether(turns);
    return [unwrap(await this.home(home).settle({ ...turn, lease: null }))];
  }

  /**
   * Reads what a turn continues: the turn at `previous` with all earlier ones, the items that `input` refers to, and
   * the stored results of MCP calls that come without theirs (OpenAI's agents SDK leaves them out). Makes one call for
   * each home, some in parallel. Throws the 400s of unknown ids (other tenants', deleted and unstored ones look alike),
   * of references to too many homes, and of items that are longer than a history may be.
   */
  async past(input: readonly InputItem[], previous: TurnAddress | null): Promise<ReadPast> {
    const needed: [index: number, item: InputItem][] = [];
    for (const [index, item] of input.entries()) {
      if (item.type === "item_reference" || (item.type === "mcp_call" && lacksResult(item))) needed.push([index, item]);
    }
    if (!previous && needed.length === 0) return { history: [], replays: [], input: input as Item[], length: 0 };

    const wanted = new Map<string, { previous: string | null; keys: ItemKey[] }>();
    if (previous) wanted.set(previous.home, { previous: previous.turn, keys: [] });
    for (const [index, { id = "", type }] of needed) {
      const address = parseItemId(id);
      if (!address) throw itemNotFound(input, id);
      const entry = wanted.get(address.home) ?? { previous: null, keys: [] };
      entry.keys.push({ id, turn: address.turn, ...(type === "mcp_call" && { optional: true }) });
      wanted.set(address.home, entry);
      if (wanted.size > MAX_HOMES) throw tooManyHomes(index);
    }

    // A call of the home takes longer than the rest of such a turn's reading.
    const told = previous && needed.length === 0 ? this.#chainsOf(previous.home)?.told(previous.turn) : undefined;
    if (told) return { ...told, input: input as Item[] };
    const snapshots = await this.#snapshots([...wanted]);
    let past: Omit<ReadPast, "input"> = { history: [], replays: [], length: 0 };
    const resolved = new Map<string, { item: Item; length: number }>();
    for (const [index, snapshot] of snapshots.entries()) {
      if (!snapshot.found) {
        if (snapshot.missing === "item") throw itemNotFound(input, snapshot.id);
        if (snapshot.missing === "previous") {
          throw previousResponseNotFound(previous ? responseId(previous) : "", snapshot.why);
        }
        throw historyTooLong();
      }
      // The first home is that of `previous`, if there is one; the others give an empty history.
      if (index === 0) past = readHistory(snapshot.history);
      if (index === 0 && previous) this.#chainsOf(previous.home)?.tell(previous.turn);
      for (const [id, json] of Object.entries(snapshot.references)) {
        resolved.set(id, { item: JSON.parse(json) as Item, length: json.length });
      }
    }
    // An item with several references is in the input several times.
    const length = needed.reduce((sum, [, { id = "" }]) => sum + (resolved.get(id)?.length ?? 0), 0);
    if (length > MAX_HISTORY_LENGTH) throw contextLengthExceeded("The items that 'input' refers to are too long.");
    return {
      ...past,
      length: past.length + length,
      input: input.map((item) => {
        if (item.type === "item_reference") return resolved.get(item.id)?.item as Item;
        if (item.type !== "mcp_call" || !lacksResult(item)) return item;
        const kept = resolved.get(item.id ?? "")?.item;
        return kept?.type === "mcp_call" ? { ...item, output: kept.output, error: kept.error } : item;
      }),
    };
  }

  /** Asks each home, in order, a few at a time. */
  async #snapshots(wanted: readonly [home: string, { previous: string | null; keys: ItemKey[] }][]) {
    const snapshots: Snapshot[] = [];
    for (let start = 0; start < wanted.length; start += CONCURRENT_HOMES) {
      const asked = wanted.slice(start, start + CONCURRENT_HOMES);
      const answers = await Promise.all(
        asked.map(([home, { previous, keys }]) =>
          this.ask(
            home,
            emptySnapshot(previous, keys),
            async (stub): Promise<Snapshot> => stub.snapshot(previous, keys),
          ),
        ),
      );
      snapshots.push(...answers);
      // A missing item fails the request, so the other homes are not asked.
      if (answers.some(({ found }) => !found)) break;
    }
    return snapshots;
  }
}

/** The tree of a new turn: its conversation's, else its predecessor's, else that of the newest item it refers to, else undefined. */
export function knownTree(
  input: readonly InputItem[],
  previous: TurnAddress | null,
  conversation: TurnAddress | undefined,
): TreeAddress | undefined {
  if (conversation) return treeOf(conversation);
  if (previous) return treeOf(previous);
  const newest = input.findLast((item) => item.type === "item_reference");
  const address = newest?.id === undefined ? undefined : parseItemId(newest.id);
  return address && treeOf(address);
}

/** The address of a conversation. Throws the 404 for an id that this server cannot have made. */
export function conversationAddress(id: string): TurnAddress {
  const address = parseConversationId(id);
  if (!address) throw conversationNotFound(id);
  return address;
}

/** Tells whether an item is a call of an MCP tool by this server that comes back without its result. */
function lacksResult({ id, output, error }: Extract<InputItem, { type: "mcp_call" }>): boolean {
  return output === null && error === null && id !== undefined && parseItemId(id) !== undefined;
}

function itemNotFound(input: readonly InputItem[], id: string) {
  const index = input.findIndex((item) => item.type === "item_reference" && item.id === id);
  return notFound("Item", id, `input[${index}].id`, { status: 400 });
}

function tooManyHomes(index: number) {
  return invalidRequest(
    `input[${index}].id`,
    `The items that 'input' refers to were made in more than ${MAX_HOMES} different conversations.`,
    "array_above_max_length",
  );
}

/**
 * Chooses the home of a new conversation tree. Making an object and its tables costs more than all rows of a short
 * tree, so the trees of a tenant that begin one after the other in an isolate share a home. No isolates need to agree
 * on it, because ids contain the home.
 *
 * A home takes few trees, and for a limited time: so it stays small, and its content expires, and is removed, together.
 */

/** How long a home takes new trees, in milliseconds. */
const OPEN_MS = 3_600_000;

/** Tenants whose homes are remembered. A forgotten tenant begins another home. */
const MAX_TENANTS = 1_000;

interface OpenHome {
  key: string;
  /** Unix milliseconds. */
  since: number;
  trees: number;
  /** Names that were drawn for them. */
  names: number;
}

/** By tenant, oldest home first. */
const openToTrees = new Map<string, OpenHome>();

/** The address of a new tree. `isFirst`: its home has nothing yet. */
export interface NewTree extends TreeAddress {
  isFirst: boolean;
}

/**
 * Reserves an address for a new tree of a tenant, and gives the function that draws it, and another one with each call; the last one
 * counts. A home takes `treesPerHome` trees, whose names follow each other: SQLite adds their rows at the end, where it seldom has to
 * split a page. A caller that waits before it draws takes none from others.
 */
export function newTree(tenant: string, treesPerHome: number): () => NewTree {
  if (treesPerHome === 1) return () => ({ home: homeHere(tenant), tree: "", isFirst: true });
  const now = Date.now();
  const known = openToTrees.get(tenant);
  // A caller may draw many names.
  const mayTake = known && known.trees < treesPerHome && known.names < TREE_NAMES / 2 && now - known.since < OPEN_MS;
  const home = mayTake ? known : openHome(tenant, now);
  home.trees += 1;
  const isFirst = home.trees === 1;
  return () => {
    const tree = treeName(home.names);
    home.names += 1;
    return { home: home.key, tree, isFirst };
  };
}

/** Draws the key of a home that runs in this process. */
export function homeHere(tenant: string, draw = newHome): string {
  for (;;) {
    const key = draw();
    if (otherWorkerOf({ binding: "HOME", tenant, key }) === undefined) return key;
  }
}

/** Stops this isolate from putting new trees into a home that failed to store something. */
export function closeHome(tenant: string, home: string): void {
  if (openToTrees.get(tenant)?.key === home) openToTrees.delete(tenant);
}

function openHome(tenant: string, now: number): OpenHome {
  const begun = { key: homeHere(tenant, newSharedHome), since: now, trees: 0, names: 0 };
  openToTrees.delete(tenant);
  openToTrees.set(tenant, begun);
  const oldest = openToTrees.size > MAX_TENANTS ? openToTrees.keys().next().value : undefined;
  if (oldest !== undefined) openToTrees.delete(oldest);
  return begun;
}
