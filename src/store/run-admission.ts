import type { McpAccess } from "../contract/mcp-access.ts";
import { conversationOf } from "../protocol/create-request.ts";
import { conversationLocked, conversationNotFound, responseNotFound } from "../protocol/errors.ts";
import { responseId } from "../protocol/ids.ts";
import type { ConversationTurns } from "./conversation-turns.ts";
import type { HomeRows } from "./home-rows.ts";
import type { Housekeeping } from "./housekeeping.ts";
import { type ResponseReader, runningBody } from "./response-reader.ts";
import { type Result, refusalOf, refused } from "./result.ts";
import type { RunHost } from "./run-host.ts";
import type { RunSpec } from "./run-store.ts";
import type { StoredResponse } from "./turn-store.ts";

/** How a run begins: what is checked before, under the lock of its conversation where it is in one. */
export class RunAdmission {
  readonly #rows: HomeRows;
  readonly #runs: RunHost;
  readonly #responses: ResponseReader;
  readonly #conversation: ConversationTurns;
  readonly #housekeeping: Housekeeping;

  constructor(
    rows: HomeRows,
    runs: RunHost,
    responses: ResponseReader,
    conversation: ConversationTurns,
    housekeeping: Housekeeping,
  ) {
    this.#rows = rows;
    this.#runs = runs;
    this.#responses = responses;
    this.#conversation = conversation;
    this.#housekeeping = housekeeping;
  }

  /** Begins a run and gives its response as it is now; that of the turn, when the turn has a response already. */
  async start(
    spec: RunSpec,
    ticket: string,
    waitMs: number,
    access: Readonly<Record<string, McpAccess>>,
  ): Promise<Result<StoredResponse>> {
    const known = this.#responses.retrieve(spec.turn);
    if (known) return { ok: true, value: known };
    // The response was deleted, and its items are in the conversation.
    if (this.#rows.turns.has(spec.turn)) return refused(responseNotFound(responseId(spec)));
    try {
      this.#checkConversation(spec);
      return { ok: true, value: await this.#begin(spec, ticket, waitMs, access) };
    } catch (error) {
      // What is refused leaves nothing.
      await this.#housekeeping.releaseIfEmpty();
      return refusalOf(error);
    }
  }

  async #begin(
    spec: RunSpec,
    ticket: string,
    waitMs: number,
    access: Readonly<Record<string, McpAccess>>,
  ): Promise<StoredResponse> {
    using scope = new DisposableStack();
    const lease = spec.inConversation ? scope.use(await this.#conversation.acquire(ticket, waitMs)) : undefined;
    await this.#housekeeping.watchRuns();
    // From here to the start nothing waits: of two requests with one turn, one starts it and the other finds it.
    const meanwhile = this.#responses.retrieve(spec.turn);
    if (meanwhile) return meanwhile;
    if (spec.inConversation && !lease) throw conversationLocked();
    // Deleted while this turn waited.
    this.#checkConversation(spec);
    this.#runs.start(spec, scope, access);
    // An object that was empty until now may have released its alarm while this call waited.
    await this.#housekeeping.watchRuns();
    return runningBody(spec, spec.request.background ? "queued" : "in_progress");
  }

  /** Throws the 404 when the run is to be in a conversation that is not here. */
  #checkConversation(spec: RunSpec): void {
    const id = conversationOf(spec.request);
    if (id !== undefined && !this.#rows.conversations.get(id)) throw conversationNotFound(id);
  }
}
