import { type ErrorFields, responseInProgress } from "@responses-edge/responses-api/errors";
import { type TurnAddress, treeOf } from "@responses-edge/responses-api/ids";
import type { McpAccess } from "@responses-edge/responses-api/tools";
import { loadConfig } from "../../config/index.ts";
import type { RawEnv } from "../../env.ts";
import { currentOverrides } from "../deployment/keys/live-config.ts";
import { tenantConversations, tenantRuns } from "../limits/permits.ts";
import { OwnedObject } from "../objects/owned-object.ts";
import { type HomeRequest, type Result, readHomeUrl, refusalOf, refused } from "../objects/rpc.ts";
import { type CarriedHome, carriedOf, restoreCarried } from "./carried-home.ts";
import type { Chains } from "./chains.ts";
import { ConversationLock, LeaseSockets } from "./conversation-lock.ts";
import { ConversationTurns } from "./conversation-turns.ts";
import { answerEvents, ReaderCount } from "./event-reader.ts";
import { forkRun } from "./forked-runs.ts";
import type { History } from "./history.ts";
import { conversationHistory, historyOfRun, type ItemKey, type Snapshot, snapshot } from "./history-reader.ts";
import { type ImportAnswer, type ImportPart, importPart } from "./home-import.ts";
import { exportLines } from "./home-lines.ts";
import { type Conversation, HomeRows, type IdempotencyClaim } from "./home-rows.ts";
import { HomeLife, Housekeeping, oldestOf } from "./housekeeping.ts";
import { type ItemPage, type PageRequest, unknownCursor } from "./item-store.ts";
import { type LiveRunFacts, ResponseReader, treePage } from "./response-reader.ts";
import { admitRun, RunHost } from "./run-host.ts";
import type { RunSpec } from "./run-store.ts";
import { type ForegroundTurn, settle, settleRun, settleTogether, type TurnToSettle } from "./settlement.ts";
import type { StoredResponse } from "./stored-response.ts";

/**
 * The home of a conversation, or of one or several trees of responses: one Durable Object that stores every turn of
 * them as an immutable row, runs their background turns, and orders the turns of its conversation. Its name is tenant +
 * home key, so that another tenant's key addresses another, empty object.
 *
 * This class has the methods that the Worker may call, and the alarm; the parts that its constructor makes do the work.
 * Reading never creates a table.
 */
export class Home extends OwnedObject {
  /** The histories in its memory. The Worker reads those that its answers have told of. */
  readonly chains: Chains;
  readonly #rows: HomeRows;
  readonly #conversation: ConversationTurns;
  readonly #runs: RunHost;
  readonly #responses: ResponseReader;
  readonly #housekeeping: Housekeeping;
  readonly #readers = new ReaderCount();
  readonly #life: HomeLife;
  /** The arguments of every settlement. */
  readonly #settling: Parameters<typeof settleRun>[0];

  constructor(state: DurableObjectState, env: RawEnv) {
    super(state, env, "HOME");
    const waitUntil = (promise: Promise<unknown>) => this.waitUntil(promise);
    const { tenant = "", key: address = "" } = this.named;
    const name = state.id.toString();
    const wake = (at: number) => waitUntil(this.#housekeeping.wake(at));
    const rows = new HomeRows(
      state.storage,
      () => oldestOf(loadConfig(this.env)),
      { tenant, home: address },
      { env: this.env, wake },
    );
    const sockets = new LeaseSockets(state);
    const lock = new ConversationLock(tenantConversations.of(tenant, name, this));
    const maxOpen = () => loadConfig(this.env).maxOpenConversationsPerTenant;
    const conversation = new ConversationTurns(rows, lock, sockets, maxOpen);
    this.#rows = rows;
    this.chains = rows.turns.chains;
    this.#conversation = conversation;
    this.#runs = new RunHost({
      env: this.env,
      waitUntil,
      runs: rows.runs,
      log: rows.log,
      load: tenantRuns.of(tenant, name, this),
      address,
      history: (spec) => historyOfRun(rows, spec),
      fork: (spec, fork, means) => forkRun(rows, spec, fork, means),
      acquireConversation: () => conversation.acquireToResume(),
      transaction: (body) => rows.transaction(body),
      settle: (settled, result) => settleRun(this.#settling, settled, result),
    });
    this.#responses = new ResponseReader(rows, this.#runs);
    this.#housekeeping = new Housekeeping(state.storage, rows, this.#runs, this.env);
    this.#settling = { tenant, env: this.env, rows, conversation, housekeeping: this.#housekeeping, waitUntil };
    this.#life = new HomeLife(state, this.env, rows, this.#housekeeping, () => this.isIdle, sockets);
  }

  override suspend(ms: number): Promise<void> {
    return this.#runs.suspend(ms);
  }

  protected override async carried(): Promise<CarriedHome | undefined> {
    return carriedOf({ runs: this.#runs, conversation: this.#conversation });
  }

  override async takeOver(carried: CarriedHome): Promise<void> {
    this.waitUntil(restoreCarried({ runs: this.#runs, conversation: this.#conversation }, carried));
  }

  override get isIdle(): boolean {
    return super.isIdle && !this.#conversation.isEntered;
  }

  override get mayBeVacant(): boolean {
    return this.#life.mayBeVacant;
  }

  /** Ends this instance of the object, as `HomeLife` does. */
  override leave(onlyIfVacant: boolean): Promise<boolean> {
    return this.#life.leave(onlyIfVacant);
  }

  // Responses

  /**
   * The items of `previous` and all earlier turns, oldest first, and of each reference. The whole chain must exist: a
   * turn with a deleted ancestor cannot be continued.
   */
  snapshot(previous: string | null, references: readonly ItemKey[]): Snapshot {
    return snapshot(this.#rows, previous, references);
  }

  /** A turn that was created at `createdAt` is about to be settled: creates the tables before the turn waits for them. */
  awaitTurn(createdAt: number): Promise<void> {
    this.#life.awaitTurn();
    return this.#housekeeping.retain(createdAt);
  }

  /** Stores a foreground turn: in one row if it fits, in one transaction. A repeated call is harmless. */
  settle(turn: TurnToSettle): Promise<Result<number>> {
    return settle(this.#settling, turn);
  }

  /** The same for turns outside of the conversation, in one transaction. Gives the rows of each. */
  settleTogether(turns: readonly ForegroundTurn[]): Promise<number[]> {
    return settleTogether(this.#settling, turns);
  }

  /** A response, settled or still running; null if it does not exist (any more). */
  retrieve(turn: string): StoredResponse | null {
    return this.#responses.retrieve(turn);
  }

  /** A page of a turn's own input; null if the turn does not exist. */
  inputItems(turn: string, page: PageRequest): Result<ItemPage> | null {
    return this.#responses.inputItems(turn, page);
  }

  /** A page of the responses of a response's tree; null if the response does not exist. */
  tree(address: TurnAddress, page: PageRequest): ItemPage | null {
    return this.#responses.has(address.turn)
      ? treePage({ rows: this.#rows, runs: this.#runs }, treeOf(address), page)
      : null;
  }

  /** Replaces the metadata of a response, and gives the response; null if it does not exist. The 409 of one that is running. */
  async updateResponse(turn: string, metadata: Record<string, string>): Promise<Result<StoredResponse> | null> {
    // Nothing awaits after this: the change and its alarm are one write.
    await this.#housekeeping.open();
    if (!this.#rows.setMetadata(turn, metadata)) {
      return this.#responses.has(turn) ? refused(responseInProgress()) : null;
    }
    const response = this.#responses.retrieve(turn);
    return response && { ok: true, value: response };
  }

  /** Removes a response's content; one that is running is stopped first. False if it does not exist. */
  async delete(turn: string): Promise<boolean> {
    this.#runs.resumeRuns();
    await this.#runs.cancel(turn);
    // Nothing awaits from here on: the deletion and its alarm are one write.
    await this.#housekeeping.open();
    if (!this.#rows.turns.hasResponse(turn)) return false;
    this.#readers.delete(turn);
    if (!this.#rows.isReported && (await this.#housekeeping.releaseIfEmpty(turn))) return true;
    const isDeleted = this.#rows.deleteResponse(turn);
    if (this.#rows.isUnused()) await this.#housekeeping.releaseIfEmpty();
    return isDeleted;
  }

  // Background runs

  /**
   * Accepts a run and gives its response in its current state. A repeated call with the same turn (of a client's retry)
   * changes nothing. `ticket` names the caller in the conversation's queue; `access` is never stored.
   */
  async startRun(
    specJson: string,
    ticket: string,
    waitMs: number,
    access: Record<string, McpAccess> = {},
  ): Promise<Result<StoredResponse>> {
    const home = { ...this.#settling, runs: this.#runs, find: (turn: string) => this.#responses.retrieve(turn) };
    await currentOverrides(this.env);
    return admitRun(home, JSON.parse(specJson) as RunSpec, { ticket, waitMs, access });
  }

  /** Waits until a run is settled, and gives its response with its failure; null if it does not exist. */
  async finished(turn: string): Promise<{ response: StoredResponse; failure: ErrorFields | null } | null> {
    return this.#responses.finished(turn);
  }

  /** Stops a background run; gives the response after that. Null if it does not exist; the 400 of one without `background: true`. */
  async cancel(turn: string): Promise<Result<StoredResponse> | null> {
    return this.#responses.cancel(turn);
  }

  /** A live run, for the operator, without its content. Null if it has ended. */
  liveRun(turn: string): LiveRunFacts | null {
    return this.#responses.liveRun(turn);
  }

  /** Stops a run of either kind, for the operator; gives its final status. Null if it is not live. */
  async cancelRun(turn: string): Promise<string | null> {
    return this.#responses.cancelRun(turn);
  }

  /** Answers a `HomeRequest`; any other URL with a 404. */
  override async fetch(request: Request): Promise<Response> {
    const asked = readHomeUrl(request.url);
    switch (asked?.kind) {
      case "events":
        return answerEvents(
          { rows: this.#rows, runs: this.#runs, responses: this.#responses, readers: this.#readers },
          { ...asked, ...loadConfig(this.env), waitUntil: (promise) => this.waitUntil(promise) },
        );
      case "export":
        return new Response(this.counted(exportLines(this.#rows, this.named.key ?? "", asked.turn)));
      case "conversation":
        return this.#enterConversation(asked);
      case undefined:
        return new Response(null, { status: 404 });
    }
  }

  // Conversations

  /** Creates the conversation, with first items (a JSON array) if there are any. */
  async createConversation(
    id: string,
    turn: string,
    metadata: Record<string, string>,
    itemsJson: string,
    owner?: string,
  ): Promise<Conversation> {
    await this.#housekeeping.open();
    const made = this.#conversation.create(id, turn, metadata, itemsJson, owner);
    this.#rows.noteStored(owner);
    return made;
  }

  conversation(id: string): Conversation | null {
    return this.#rows.conversations.get(id);
  }

  updateConversation(id: string, metadata: Record<string, string>): Conversation | null {
    if (!this.#rows.conversations.get(id)) return null;
    this.#rows.conversations.setMetadata(id, metadata);
    this.#rows.stored.changes += 1;
    return this.#rows.conversations.get(id);
  }

  async deleteConversation(id: string): Promise<boolean> {
    if (!this.#rows.conversations.get(id)) return false;
    const isUnderWay = () => this.#conversation.isEntered || this.#runs.liveRuns > 0;
    await this.#housekeeping.open();
    this.#rows.deleteConversation(id, isUnderWay());
    if (isUnderWay() || !(await this.#housekeeping.releaseIfEmpty())) await this.#housekeeping.sweepSoon();
    return true;
  }

  /** The current content of the conversation, whoever holds it; null if it does not exist. */
  conversationHistory(id: string): Result<History> | null {
    if (!this.#rows.conversations.get(id)) return null;
    try {
      return { ok: true, value: conversationHistory(this.#rows, this.#rows.turns.lastPosition()).texts };
    } catch (error) {
      return refusalOf(error);
    }
  }

  /** A page of the conversation's items; null if it does not exist. */
  conversationItems(id: string, page: PageRequest): Result<ItemPage> | null {
    if (!this.#rows.conversations.get(id)) return null;
    const found = this.#rows.items.page(page);
    return found ? { ok: true, value: found } : refused(unknownCursor(page.after ?? ""));
  }

  /** A page of the responses in the conversation, and of those that branch off it; null if it does not exist. */
  conversationTree(id: string, home: string, page: PageRequest): ItemPage | null {
    this.#runs.resumeRuns();
    return (
      this.#rows.conversations.get(id) && treePage({ rows: this.#rows, runs: this.#runs }, { home, tree: "" }, page)
    );
  }

  /** Adds items; null if the conversation does not exist. Waits for the lock, as every change does. */
  async addConversationItems(
    id: string,
    turn: string,
    itemsJson: string,
    ticket: string,
    waitMs: number,
    owner?: string,
  ): Promise<Result<ItemPage> | null> {
    this.#runs.resumeRuns();
    await this.#housekeeping.open();
    return this.#conversation.addItems(id, turn, itemsJson, ticket, waitMs, owner);
  }

  /** An item as JSON text; null if the conversation or the item does not exist. */
  conversationItem(id: string, itemId: string): string | null {
    const item = this.#rows.conversations.get(id) && this.#rows.items.ofConversation(itemId);
    return item ? JSON.stringify(item) : null;
  }

  /** Removes an item; gives the conversation, or null if it or the item does not exist. */
  async deleteConversationItem(
    id: string,
    itemId: string,
    ticket: string,
    waitMs: number,
  ): Promise<Result<Conversation | null> | null> {
    this.#runs.resumeRuns();
    await this.#housekeeping.open();
    return this.#conversation.deleteItem(id, itemId, ticket, waitMs);
  }

  /**
   * Waits for the conversation. Answers 101 with a WebSocket that sends the history (`receiveHistory`); while it is
   * open, a turn may be settled under the ticket. Any other status comes with the error's fields.
   */
  async #enterConversation(asked: HomeRequest & { kind: "conversation" }): Promise<Response> {
    this.#runs.resumeRuns();
    const entered = await this.#conversation.enter(asked);
    this.setHibernating(this.#conversation.isEntered);
    return entered.ok ? entered.value : Response.json(entered.error, { status: entered.error.status });
  }

  /** Called when a caller that waits for the conversation, or has entered it, has left. */
  leaveConversation(ticket: string): void {
    this.#conversation.leave(ticket);
  }

  /** Called when a turn's Worker is gone, or no longer needs the conversation. */
  override webSocketClose(socket: WebSocket): void {
    this.#conversation.lose(socket);
    this.setHibernating(this.#conversation.isEntered);
  }

  override webSocketError(socket: WebSocket): void {
    this.webSocketClose(socket);
  }

  /** Removes everything that is stored here. Running turns are stopped first. */
  async erase(): Promise<void> {
    await this.#runs.cancelAll();
    await this.#housekeeping.erase();
  }

  /** Takes a part of this home's export. The last part writes all of them into its rows, or none. */
  import(part: ImportPart): Promise<ImportAnswer> {
    return importPart({ sql: this.ctx.storage.sql, rows: this.#rows, housekeeping: this.#housekeeping }, part);
  }

  // Idempotency: methods of the object that a key names

  /** Claims an idempotency key for a turn, or gives the turn that has it. */
  async claim(fingerprint: string, home: string, turn: string): Promise<IdempotencyClaim> {
    const claim = this.#rows.transaction(() => this.#rows.idempotency.claim(fingerprint, home, turn, Date.now()));
    if (claim.kind === "claimed") await this.#housekeeping.retainKey();
    return claim;
  }

  /** Notes that the key's turn has begun. It never begins again, even after it was deleted. */
  async begun(fingerprint: string, home: string, turn: string): Promise<void> {
    this.#rows.transaction(() => this.#rows.idempotency.begin(fingerprint, home, turn, Date.now()));
    await this.#housekeeping.retainKey();
  }

  /** Gives back a key whose request was refused before anything had begun. */
  async unclaim(fingerprint: string, turn: string): Promise<void> {
    this.#rows.idempotency.unclaim(fingerprint, turn);
    await this.#housekeeping.releaseIfEmpty();
  }

  protected override async ring(): Promise<void> {
    await this.#housekeeping.ring();
  }

  protected override async rung(): Promise<void> {
    await this.#life.leaveIfVacant();
  }
}

declare module "../objects/objects.ts" {
  interface ObjectClasses {
    HOME: Home;
  }
}
