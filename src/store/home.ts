import { DurableObject, RpcTarget } from "cloudflare:workers";
import { loadConfig, type Variables } from "../config.ts";
import type { McpAccess } from "../contract/mcp-access.ts";
import { conversationOf } from "../protocol/create-request.ts";
import {
  ApiError,
  contextLengthExceeded,
  conversationLocked,
  conversationNotFound,
  type ErrorFields,
  invalidRequest,
  previousResponseNotFound,
  responseNotFound,
} from "../protocol/errors.ts";
import { responseId } from "../protocol/ids.ts";
import type { Item } from "../protocol/items.ts";
import { initialResponse } from "../protocol/response.ts";
import type { TurnResult } from "../turn/turn.ts";
import { ConversationLock, type Lease } from "./conversation-lock.ts";
import { type Conversation, ConversationStore } from "./conversation-store.ts";
import { EventLogStore } from "./event-log.ts";
import { streamEvents } from "./event-reader.ts";
import { type IdempotencyClaim, IdempotencyStore } from "./idempotency-store.ts";
import { MAX_HISTORY_LENGTH } from "./limits.ts";
import { RunHost } from "./run-host.ts";
import { type RunSpec, RunStore } from "./run-store.ts";
import { Tables } from "./tables.ts";
import { tenantConversations, tenantRuns } from "./tenant-load.ts";
import {
  concatArrays,
  type History,
  type ItemPage,
  type PageRequest,
  pageOf,
  type SettledTurn,
  type StoredResponse,
  TurnStore,
} from "./turn-store.ts";
import { WebhookStore } from "./webhooks.ts";

/**
 * The home of a conversation tree: one Durable Object that keeps every turn of it as an immutable row, runs its
 * background turns, and orders the turns of its conversation. Its name is tenant + home key, so another tenant's key
 * addresses another, empty object.
 *
 * This class is the surface: what the Worker may ask, and the alarm. Reading never creates a table.
 */

/** What an RPC gives that may be refused: classes of errors do not cross it. */
export type Result<T> = { ok: true; value: T } | { ok: false; error: ErrorFields };

/** What a new turn needs from the past: a chain of turns, and the items of single references, as JSON texts. */
export type Snapshot =
  | { found: true; history: History; references: Record<string, string> }
  | { found: false; missing: "previous" }
  | { found: false; missing: "item"; id: string }
  | { found: false; missing: "room" };

export interface ItemKey {
  id: string;
  turn: string;
  /** One that is missing is left out. */
  optional?: true;
}

/** A foreground turn to keep; with the token of its lease when it belongs to the conversation. */
export interface TurnToSettle extends Omit<SettledTurn, "base" | "position"> {
  lease: { token: string; joins: boolean } | null;
}

/** The right to take a turn in the conversation, as the Worker holds it: disposing of it, or dying, gives it back. */
export class TurnLease extends RpcTarget {
  readonly #lease: Lease;

  constructor(lease: Lease) {
    super();
    this.#lease = lease;
  }

  release(): void {
    this.#lease.release();
  }

  [Symbol.dispose](): void {
    this.#lease.release();
  }
}

/** Most that is read to find the items that one turn refers to: each turn that has one of them is parsed as a whole. */
const MAX_READ_LENGTH = 4 * MAX_HISTORY_LENGTH;

/** The sweep runs no oftener than this. */
const MIN_SWEEP_INTERVAL_MS = 3_600_000;

/** Who may read the events of one run at the same time. */
const MAX_READERS = 100;

/** How soon the alarm looks after live runs: an orphan is found within this time after its process came back. */
const WATCHDOG_MS = 30_000;

export class Home extends DurableObject<Variables> {
  readonly #tables: Tables;
  readonly #turns: TurnStore;
  readonly #log: EventLogStore;
  readonly #runs: RunStore;
  readonly #host: RunHost;
  readonly #conversations: ConversationStore;
  readonly #idempotency: IdempotencyStore;
  readonly #webhooks: WebhookStore;
  readonly #lock: ConversationLock;
  readonly #leases = new Map<string, { lease: Lease; base: number }>();
  /** When the alarm rings; null: not at all; undefined: not asked yet. */
  #alarmAt: number | null | undefined;
  /** Readers of each run's events. */
  readonly #readers = new Map<string, number>();
  #sweptAt = 0;

  constructor(state: DurableObjectState, env: Variables) {
    super(state, env);
    const { sql } = state.storage;
    this.#tables = new Tables(sql);
    this.#turns = new TurnStore(sql, this.#tables);
    this.#log = new EventLogStore(sql, this.#tables);
    this.#runs = new RunStore(sql, this.#tables);
    this.#conversations = new ConversationStore(sql, this.#tables, this.#turns);
    this.#idempotency = new IdempotencyStore(sql, this.#tables);
    this.#webhooks = new WebhookStore(sql, this.#tables);
    const [tenant = "", address = ""] = state.id.name?.split(":") ?? [];
    const name = state.id.toString();
    this.#lock = new ConversationLock(tenantConversations.of(tenant, name, this));
    this.#host = new RunHost({
      env,
      waitUntil: (promise) => state.waitUntil(promise),
      runs: this.#runs,
      log: this.#log,
      load: tenantRuns.of(tenant, name, this),
      address,
      history: (spec) => this.#historyOf(spec),
      transaction: (body) => this.#transaction(body),
      settle: (spec, base, result, body) => this.#settleRun(spec, base, result, body),
    });
  }

  // Responses

  /**
   * The items of `previous` and all turns before it, oldest first, and of each reference. The whole chain must be
   * there: a turn whose ancestor was deleted cannot be continued.
   */
  snapshot(previous: string | null, references: readonly ItemKey[]): Snapshot {
    let history: History = { items: "[]", messages: "[]" };
    if (previous !== null) {
      const found = this.#chain(previous);
      if (found === undefined) return { found: false, missing: "previous" };
      history = found;
    }
    if (isTooLong(history)) return { found: false, missing: "room" };
    const found: Record<string, string> = {};
    const turns = new Map<string, Set<string>>();
    for (const { id, turn } of references) turns.set(turn, (turns.get(turn) ?? new Set()).add(id));
    let length = history.items.length + history.messages.length;
    let read = 0;
    for (const [turn, ids] of turns) {
      const items = this.#turns.itemsById(ids, turn, this.#oldest());
      read += items.read;
      for (const [id, item] of items.found) {
        // What was taken out of the conversation is gone for whoever asks for it by itself.
        if (this.#conversations.hasDeleted(id)) continue;
        found[id] = item;
        length += item.length;
      }
      if (length > MAX_HISTORY_LENGTH || read > MAX_READ_LENGTH) return { found: false, missing: "room" };
    }
    const missing = references.find(({ id, optional }) => !optional && !Object.hasOwn(found, id));
    return missing ? { found: false, missing: "item", id: missing.id } : { found: true, history, references: found };
  }

  /** Keeps a foreground turn for good: one row where it fits, in one transaction. Again is harmless. */
  async settle(turn: TurnToSettle): Promise<Result<null>> {
    const { lease, ...settled } = turn;
    // A caller that has lost the answer asks again.
    if (this.#turns.has(turn.turn)) return { ok: true, value: null };
    await this.#setRetentionAlarm(turn.createdAt);
    const held = lease && this.#leases.get(lease.token);
    // Of another life of this object, or given back: somebody else may have had the conversation since.
    if (lease && (!held || held.lease.released)) return refused(conversationLocked());
    this.#transaction(() => {
      const position = lease?.joins ? this.#turns.lastPosition() + 1 : null;
      this.#turns.insert({ ...settled, base: held?.base ?? null, position });
    });
    held?.lease.release();
    // An object that was empty until now may have given its alarm back in between.
    await this.#setRetentionAlarm(turn.createdAt);
    return { ok: true, value: null };
  }

  /** A response, settled or still running; null when there is none (any more). */
  retrieve(turn: string): StoredResponse | null {
    this.#takeUpOrphans();
    return this.#turns.response(turn, this.#oldest()) ?? this.#runningResponse(turn);
  }

  /** A page of a turn's own input, or null when there is no such turn. */
  inputItems(turn: string, page: PageRequest): Result<ItemPage> | null {
    if (this.retrieve(turn) === null) return null;
    const stored = this.#turns.items(turn, "input", this.#oldest());
    const items = stored === undefined ? this.#host.live(turn)?.spec.input : (JSON.parse(stored) as Item[]);
    if (!items) return null;
    const ordered = page.order === "desc" ? items.toReversed() : items;
    if (page.after !== undefined && !items.some((item) => item.id === page.after)) {
      return refused(unknownCursor(page.after));
    }
    return { ok: true, value: pageOf(ordered, page) };
  }

  /** Removes a response's content; one that is running is stopped first. False when there was none. */
  async delete(turn: string): Promise<boolean> {
    this.#takeUpOrphans();
    await this.#host.cancel(turn);
    const deleted = this.#transaction(() => {
      if (!this.#turns.delete(turn, this.#oldest())) return false;
      this.#log.delete(turn);
      return true;
    });
    if (deleted) await this.#releaseIfEmpty();
    return deleted;
  }

  // Background runs

  /**
   * Accepts a run and gives its response as it is now. Asked again with the same turn (by a client that tries again)
   * it changes nothing. `ticket` names the caller in the conversation's queue; `access` is never stored.
   */
  async startRun(
    specJson: string,
    ticket: string,
    waitMs: number,
    access: Record<string, McpAccess> = {},
  ): Promise<Result<StoredResponse>> {
    const spec = JSON.parse(specJson) as RunSpec;
    const known = this.retrieve(spec.turn);
    if (known) return { ok: true, value: known };
    // The response was deleted, and its items are in the conversation.
    if (this.#turns.has(spec.turn)) return refused(responseNotFound(responseId(spec)));
    const conversation = conversationOf(spec.request);
    if (conversation !== undefined && !this.#conversations.get(conversation)) {
      return refused(conversationNotFound(conversation));
    }
    let lease: Lease | undefined;
    try {
      if (spec.inConversation) lease = await this.#acquire(ticket, waitMs);
      await this.#setAlarm(Date.now() + WATCHDOG_MS);
      // From here to the start nothing waits: of two requests with one turn, one starts it and the other finds it.
      const meanwhile = this.retrieve(spec.turn);
      if (meanwhile) {
        lease?.release();
        return { ok: true, value: meanwhile };
      }
      if (spec.inConversation && !lease) throw conversationLocked();
      // Deleted while this turn waited.
      if (conversation !== undefined && !this.#conversations.get(conversation))
        throw conversationNotFound(conversation);
      this.#host.start(spec, lease, access);
    } catch (error) {
      lease?.release();
      // What is refused leaves nothing.
      await this.#releaseIfEmpty();
      if (error instanceof ApiError) return refused(error);
      throw error;
    }
    // An object that was empty until now may have given its alarm back in between.
    await this.#setAlarm(Date.now() + WATCHDOG_MS);
    const status = spec.request.background ? "queued" : "in_progress";
    return { ok: true, value: runningBody(spec, status) };
  }

  /** Waits until a run is settled and gives its response, with the failure as it was; null when there is none. */
  async finished(turn: string): Promise<{ response: StoredResponse; failure: ErrorFields | null } | null> {
    this.#takeUpOrphans();
    await this.#host.live(turn)?.ended;
    const response = this.retrieve(turn);
    return response && { response, failure: this.#log.failure(turn) ?? null };
  }

  /** Stops a run; gives the response as it then stands, also when it had ended before. Null when there is none. */
  async cancel(turn: string): Promise<StoredResponse | null> {
    this.#takeUpOrphans();
    await this.#host.cancel(turn);
    return this.retrieve(turn);
  }

  /**
   * `GET /events?turn=…&after=N&obfuscation=0|1`: the log of a run as SSE, from the event after N, followed while the
   * run lives. A `fetch` rather than an RPC, because its body goes to the client as it is, and a client that leaves is
   * noticed here. 404 when there is no such response, 409 when it has no log, 429 when it has readers enough.
   */
  override async fetch(request: Request): Promise<Response> {
    const { searchParams } = new URL(request.url);
    const turn = searchParams.get("turn") ?? "";
    if (this.retrieve(turn) === null) return new Response(null, { status: 404 });
    const live = this.#host.live(turn);
    if (!live && !this.#log.has(turn)) return new Response(null, { status: 409 });
    const readers = this.#readers.get(turn) ?? 0;
    if (readers >= MAX_READERS) return new Response(null, { status: 429, headers: { "retry-after": "5" } });
    this.#readers.set(turn, readers + 1);
    const run = {
      turn,
      log: this.#log,
      live: () => this.#host.live(turn)?.log,
      settled: () => this.#turns.response(turn, this.#oldest()) !== null,
    };
    return streamEvents(run, {
      after: Number(searchParams.get("after") ?? -1),
      obfuscation: searchParams.get("obfuscation") !== "0",
      heartbeatMs: loadConfig(this.env).heartbeatMs,
      waitUntil: (promise) => this.ctx.waitUntil(promise.finally(() => this.#readerLeft(turn))),
    });
  }

  #readerLeft(turn: string): void {
    const left = (this.#readers.get(turn) ?? 1) - 1;
    if (left > 0) this.#readers.set(turn, left);
    else this.#readers.delete(turn);
  }

  // Conversations

  /** Makes the conversation, with first items (a JSON array) if there are any. */
  createConversation(id: string, turn: string, metadata: Record<string, string>, itemsJson: string): Conversation {
    const createdAt = Date.now();
    this.#transaction(() => {
      this.#conversations.create(id, createdAt, metadata);
      this.#addItems(turn, createdAt, itemsJson);
    });
    return this.#conversations.get(id) as Conversation;
  }

  conversation(id: string): Conversation | null {
    return this.#conversations.get(id);
  }

  updateConversation(id: string, metadata: Record<string, string>): Conversation | null {
    if (!this.#conversations.get(id)) return null;
    this.#conversations.setMetadata(id, metadata);
    return this.#conversations.get(id);
  }

  async deleteConversation(id: string): Promise<boolean> {
    if (!this.#conversations.get(id)) return false;
    this.#conversations.delete(id);
    await this.#setAlarm(Date.now() + MIN_SWEEP_INTERVAL_MS);
    return true;
  }

  conversationItems(id: string, page: PageRequest): Result<ItemPage> | null {
    if (!this.#conversations.get(id)) return null;
    const found = this.#conversations.page(page);
    return found ? { ok: true, value: found } : refused(unknownCursor(page.after ?? ""));
  }

  /** Adds items; null when there is no such conversation. Waits for its turn, as every change of it does. */
  async addConversationItems(
    id: string,
    turn: string,
    itemsJson: string,
    ticket: string,
    waitMs: number,
  ): Promise<Result<ItemPage> | null> {
    return this.#inConversation(id, ticket, waitMs, () => {
      this.#transaction(() => this.#addItems(turn, Date.now(), itemsJson));
      const items = JSON.parse(itemsJson) as Item[];
      return pageOf(items, { limit: items.length, order: "asc" });
    });
  }

  conversationItem(id: string, itemId: string): string | null {
    const item = this.#conversations.get(id) && this.#conversations.item(itemId);
    return item ? JSON.stringify(item) : null;
  }

  /** Takes an item out; the conversation, or null when there is no such conversation or item. */
  async deleteConversationItem(
    id: string,
    itemId: string,
    ticket: string,
    waitMs: number,
  ): Promise<Result<Conversation | null> | null> {
    return this.#inConversation(id, ticket, waitMs, () => {
      if (!this.#conversations.item(itemId)) return null;
      this.#conversations.deleteItem(itemId);
      return this.#conversations.get(id);
    });
  }

  /** Waits for the conversation and gives its history, with the lease under which a foreground turn may be settled. */
  async enterConversation(
    id: string,
    ticket: string,
    waitMs: number,
  ): Promise<Result<{ lease: TurnLease; history: History }>> {
    this.#takeUpOrphans();
    if (!this.#conversations.get(id)) return refused(conversationNotFound(id));
    let lease: Lease | undefined;
    try {
      lease = await this.#acquire(ticket, waitMs);
    } catch (error) {
      if (error instanceof ApiError) return refused(error);
      throw error;
    }
    if (!lease) return refused(conversationLocked());
    if (!this.#conversations.get(id)) {
      lease.release();
      return refused(conversationNotFound(id));
    }
    const base = this.#turns.lastPosition();
    const history = this.#conversations.history(base);
    if (isTooLong(history)) {
      lease.release();
      return refused(contextLengthExceeded("The conversation is too long to be continued."));
    }
    for (const [token, held] of this.#leases) if (held.lease.released) this.#leases.delete(token);
    this.#leases.set(ticket, { lease, base });
    return { ok: true, value: { lease: new TurnLease(lease), history } };
  }

  /** A caller that waits for the conversation has gone. */
  leaveConversation(ticket: string): void {
    this.#lock.leave(ticket);
    this.#leases.get(ticket)?.lease.release();
  }

  // Idempotency: in the object that the key names

  /** Claims an idempotency key for a turn, or tells whose it is. */
  async claim(fingerprint: string, home: string, turn: string): Promise<IdempotencyClaim> {
    const claim = this.#transaction(() => this.#idempotency.claim(fingerprint, home, turn, Date.now()));
    if (claim.kind === "claimed") await this.#setAlarm(Date.now() + IdempotencyStore.LIFETIME_MS);
    return claim;
  }

  /** The key's turn has begun, and never begins again: not even after it was deleted. */
  async begun(fingerprint: string, home: string, turn: string): Promise<void> {
    this.#transaction(() => this.#idempotency.begin(fingerprint, home, turn, Date.now()));
    await this.#setAlarm(Date.now() + IdempotencyStore.LIFETIME_MS);
  }

  /** Gives a key back whose request was refused before anything was begun. */
  async unclaim(fingerprint: string, turn: string): Promise<void> {
    this.#idempotency.unclaim(fingerprint, turn);
    await this.#releaseIfEmpty();
  }

  // The alarm

  /** The watchdog: takes orphaned runs up, delivers webhooks, sweeps. It generates nothing itself. */
  override async alarm(): Promise<void> {
    this.#alarmAt = null;
    this.#takeUpOrphans();
    const now = Date.now();
    const due: number[] = [];
    if (this.#host.liveRuns > 0 || this.#runs.turns().length > 0) due.push(now + WATCHDOG_MS);
    await this.#webhooks.deliverDue(loadConfig(this.env));
    const webhook = this.#webhooks.nextDue();
    if (webhook !== null) due.push(Math.max(webhook, now));
    const sweep = this.#sweep(now);
    if (sweep !== null) due.push(sweep);
    if (due.length === 0) await this.#releaseIfEmpty();
    else await this.#setAlarm(Math.min(...due));
  }

  /** Removes what has outlived its time; returns when there will be more to remove. */
  #sweep(now: number): number | null {
    const { retentionMs } = loadConfig(this.env);
    const dues: number[] = [];
    const claims = this.#idempotency.sweep(now);
    if (claims !== null) dues.push(claims);
    if (retentionMs > 0) {
      // While runs live the alarm rings often.
      if (this.#host.liveRuns === 0 || now - this.#sweptAt >= MIN_SWEEP_INTERVAL_MS) {
        this.#transaction(() => {
          this.#turns.sweep(this.#oldest(), this.#conversations.exists());
          if (this.#tables.has("turns")) this.#log.sweep();
        });
        this.#sweptAt = now;
      }
      const next = this.#turns.oldestAfter(this.#oldest());
      if (next !== null || !this.#turns.isEmpty()) {
        dues.push(Math.max((next ?? now) + retentionMs, now + MIN_SWEEP_INTERVAL_MS));
      }
    }
    return dues.length === 0 ? null : Math.min(...dues);
  }

  // Inner workings

  /** Gives the object's storage back when nothing is left in it. */
  async #releaseIfEmpty(): Promise<void> {
    const busy =
      this.#host.liveRuns > 0 ||
      this.#runs.turns().length > 0 ||
      this.#conversations.exists() ||
      this.#idempotency.isBusy() ||
      this.#webhooks.nextDue() !== null;
    if (busy || !this.#turns.isEmpty()) return;
    const deleted = this.ctx.storage.deleteAll();
    // At once: whoever comes while this waits finds an object without tables.
    this.#tables.forget();
    this.#turns.forget();
    this.#alarmAt = null;
    await deleted;
  }

  /** A transaction that leaves nothing behind when it fails, in memory neither. */
  #transaction<T>(body: () => T): T {
    try {
      return this.ctx.storage.transactionSync(body);
    } catch (error) {
      this.#tables.forget();
      this.#turns.forget();
      throw error;
    }
  }

  /** Makes sure that the alarm rings at `at` or before. */
  async #setAlarm(at: number): Promise<void> {
    if (this.#alarmAt === undefined) {
      const known = await this.ctx.storage.getAlarm();
      // Not what it was before somebody else has set it or given it back.
      if (this.#alarmAt === undefined) this.#alarmAt = known;
    }
    if (this.#alarmAt !== null && this.#alarmAt <= at) return;
    this.#alarmAt = at;
    await this.ctx.storage.setAlarm(at);
  }

  async #setRetentionAlarm(createdAt: number): Promise<void> {
    const { retentionMs } = loadConfig(this.env);
    if (retentionMs > 0) await this.#setAlarm(createdAt + retentionMs);
  }

  /** A creation time that is just too old to be shown. */
  #oldest(): number {
    const { retentionMs } = loadConfig(this.env);
    return retentionMs === 0 ? -1 : Date.now() - retentionMs;
  }

  /** Runs that are noted and do not live: their process died, or their last write failed. */
  #takeUpOrphans(): void {
    this.#host.takeUpOrphans(() => this.#lock.acquire("orphan", Number.POSITIVE_INFINITY));
  }

  #chain(previous: string): History | undefined {
    const found = this.#turns.history(previous, this.#oldest());
    if (!found) return undefined;
    const chain = { items: `[${found.items}]`, messages: `[${found.messages}]` };
    if (found.base === null) return chain;
    const conversation = this.#conversations.history(found.base);
    return {
      items: concatArrays([conversation.items, chain.items]),
      messages: concatArrays([conversation.messages, chain.messages]),
    };
  }

  #historyOf(spec: RunSpec): { history: History; base: number | null } {
    if (spec.inConversation) {
      const base = this.#turns.lastPosition();
      const history = this.#conversations.history(base);
      if (isTooLong(history)) throw contextLengthExceeded("The conversation is too long to be continued.");
      return { history, base };
    }
    if (spec.parent === null) return { history: { items: "[]", messages: "[]" }, base: null };
    const history = this.#chain(spec.parent);
    if (history === undefined) throw previousResponseNotFound(spec.request.previous_response_id ?? "");
    if (isTooLong(history)) throw contextLengthExceeded("The conversation is too long to be continued.");
    return { history, base: null };
  }

  #settleRun(spec: RunSpec, base: number | null, result: TurnResult, body: () => void): void {
    const { outcome, closed } = result;
    const joins = spec.inConversation && (outcome.status === "completed" || outcome.status === "incomplete");
    const config = loadConfig(this.env);
    this.#transaction(() => {
      body();
      this.#turns.insert({
        turn: spec.turn,
        parent: spec.parent,
        createdAt: spec.createdAt,
        base,
        position: joins ? this.#turns.lastPosition() + 1 : null,
        input: JSON.stringify(spec.input),
        output: closed.output,
        messages: closed.messages,
        response: closed.head,
      });
      this.#runs.delete(spec.turn);
      if (spec.request.background && config.webhook) this.#webhooks.add(spec, outcome.status);
    });
    if (spec.request.background && config.webhook) {
      this.ctx.waitUntil(this.#deliverWebhooks());
    }
    this.ctx.waitUntil(this.#setRetentionAlarm(spec.createdAt));
  }

  async #deliverWebhooks(): Promise<void> {
    await this.#webhooks.deliverDue(loadConfig(this.env));
    const next = this.#webhooks.nextDue();
    if (next !== null) await this.#setAlarm(next);
  }

  #runningResponse(turn: string): StoredResponse | null {
    const live = this.#host.live(turn);
    return live ? runningBody(live.spec, "in_progress") : null;
  }

  #addItems(turn: string, createdAt: number, itemsJson: string): void {
    if (itemsJson === "[]") return;
    const position = this.#turns.lastPosition() + 1;
    const items = { input: itemsJson, output: "[]", messages: null, response: null };
    this.#turns.insert({ turn, parent: null, createdAt, base: null, position, ...items });
  }

  async #inConversation<T>(id: string, ticket: string, waitMs: number, work: () => T): Promise<Result<T> | null> {
    this.#takeUpOrphans();
    if (!this.#conversations.get(id)) return null;
    let lease: Lease | undefined;
    try {
      lease = await this.#acquire(ticket, waitMs);
      if (!lease) return refused(conversationLocked());
      // Deleted while this change waited.
      return this.#conversations.get(id) ? { ok: true, value: work() } : null;
    } catch (error) {
      if (error instanceof ApiError) return refused(error);
      throw error;
    } finally {
      lease?.release();
    }
  }

  /** Waits for the conversation. Undefined when the time is up. Throws the 429 of a tenant that holds enough. */
  #acquire(ticket: string, waitMs: number): Promise<Lease | undefined> {
    return this.#lock.acquire(ticket, waitMs, loadConfig(this.env).maxOpenConversationsPerTenant);
  }
}

function isTooLong({ items, messages }: History): boolean {
  return items.length + messages.length > MAX_HISTORY_LENGTH;
}

/** The 400 of a page that is to begin after an item which the list does not have. */
function unknownCursor(after: string): ApiError {
  return invalidRequest("after", `Invalid 'after': no item with id '${after}' found.`, "item_not_found");
}

function refused(error: ApiError): { ok: false; error: ErrorFields } {
  return { ok: false, error: error.toFields() };
}

/** The response of a run that is not settled: no output yet, because none of it is final. */
function runningBody(spec: RunSpec, status: "queued" | "in_progress"): StoredResponse {
  const identity = { id: responseId(spec), model: spec.model.name, createdAt: Math.floor(spec.createdAt / 1000) };
  const { output, ...head } = initialResponse(spec.request, identity);
  return { head: JSON.stringify({ ...head, status }), output: JSON.stringify(output) };
}
