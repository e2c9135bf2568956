import { LongWork } from "@responses-edge/bounded-io/long-work";
import { parseResponseId, responseId } from "@responses-edge/responses-api/ids";
import { loadConfig } from "../../../config/index.ts";
import type { Env } from "../../../env.ts";
import type { ItemStore } from "../../home/item-store.ts";
import { isUnstored, type RunStore, runningBody } from "../../home/run-store.ts";
import type { TurnStore } from "../../home/turn-store.ts";
import type { Stub } from "../../objects/objects.ts";
import { entryOf, type IndexEntry } from "./entry.ts";
import { MAX_MISSING } from "./response-index.ts";

/**
 * Reports the responses of a home to the index of its tenant, if the deployment has one (`RESPONSE_INDEX`): those that
 * have changed, as they are stored when the outbox delivers. An instance of the home that may have missed changes compares the
 * index with all that it stores.
 */

/** UTF-16 units of stored texts that are read into an entry in a microsecond. */
const LENGTH_PER_UNIT = 200;

/** The stores of its home that it reads. */
interface Kept {
  turns: TurnStore;
  items: ItemStore;
  runs: RunStore;
  /** The turns of responses that are not listed. */
  unstored(): Set<string>;
}

export class HomeIndex {
  readonly #kept: Kept;
  readonly #who: { tenant: string; home: string };
  readonly #env: Env;
  /** The number of the last change of each turn. */
  readonly #changes = new Map<string, number>();
  #lastChange = 0;
  #isCompared: boolean;

  /** `isNew`: nothing was stored in the home before. */
  constructor(kept: Kept, who: { tenant: string; home: string }, { env, isNew }: { env: Env; isNew: boolean }) {
    this.#kept = kept;
    this.#who = who;
    this.#env = env;
    this.#isCompared = isNew;
  }

  /** Tells whether the deployment lists responses. */
  get isOn(): boolean {
    return loadConfig(this.#env).listsResponses;
  }

  /** Tells whether the index may not know all responses. */
  isPending(): boolean {
    return this.isOn && (!this.#isCompared || this.#changes.size > 0);
  }

  /** Notes that a response was stored, changed or deleted. */
  note(turn: string): void {
    this.#lastChange += 1;
    this.#changes.set(turn, this.#lastChange);
  }

  /** To be called when any rows may have changed. */
  forget(): void {
    this.#isCompared = false;
  }

  /** To be called when everything was deleted. */
  clear(): void {
    this.#changes.clear();
    this.#isCompared = true;
  }

  /** Makes the index agree with what is stored here. Rejects if it does not answer. */
  async report(): Promise<void> {
    const { tenant, home } = this.#who;
    const index = this.#env.RESPONSE_INDEXES.getByName(tenant);
    const idOf = (turn: string) => responseId({ home, turn });
    const changes = [...this.#changes];
    if (!this.#isCompared) {
      const unstored = this.#kept.unstored();
      const listed = this.#kept.turns.responses().filter((turn) => !unstored.has(turn));
      const ended = listed.map(idOf);
      const running = this.#kept.runs.turns().map(idOf);
      for (let compared = 0; compared <= ended.length + running.length; compared += MAX_MISSING) {
        const missing = await index.compare(`resp_${home}`, ended, running);
        if (missing.length === 0) break;
        await this.#send(
          index,
          missing.map((id) => parseResponseId(id)?.turn ?? ""),
        );
      }
      this.#isCompared = true;
    }
    for (let at = 0; at < changes.length; at += MAX_MISSING) {
      const some = changes.slice(at, at + MAX_MISSING);
      await this.#send(
        index,
        some.map(([turn]) => turn),
      );
      // A change during the call is reported next time.
      for (const [turn, change] of some) if (this.#changes.get(turn) === change) this.#changes.delete(turn);
    }
  }

  async #send(index: Stub<"RESPONSE_INDEXES">, turns: readonly string[]): Promise<void> {
    const { tenant, home } = this.#who;
    const work = new LongWork(tenant);
    const entries: IndexEntry[] = [];
    const gone: string[] = [];
    for (const turn of turns) {
      const entry = this.#entry(turn);
      if (entry) entries.push(entry);
      else gone.push(responseId({ home, turn }));
      const slice = work.spend(((entry?.body.length ?? 0) + (entry?.text.length ?? 0)) / LENGTH_PER_UNIT);
      if (slice) await slice;
    }
    await index.take(entries, gone);
  }

  /** The entry of a response, ended or running; undefined if it does not exist. */
  #entry(turn: string): IndexEntry | undefined {
    const { turns, runs, items } = this.#kept;
    const isTakenOut = (id: string) => items.isTakenOut(id);
    const ended = turns.node(turn);
    if (ended) {
      const kept = { ...ended, response: turns.head(ended) };
      return entryOf(this.#who.home, kept, isTakenOut);
    }
    const run = runs.find(turn)?.spec;
    if (!run || isUnstored(run)) return undefined;
    const { head, output } = runningBody(run, run.request.background ? "queued" : "in_progress");
    const { createdAt, input } = run;
    const kept = { turn, createdAt, input: JSON.stringify(input), output, response: head, timing: null };
    return entryOf(this.#who.home, kept, isTakenOut);
  }
}
