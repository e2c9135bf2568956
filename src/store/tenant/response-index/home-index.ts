import { logLine } from "@responses-edge/bounded-io/json-text";
import { parseResponseId, responseId } from "@responses-edge/responses-api/ids";
import { loadConfig } from "../../../config/index.ts";
import type { Env } from "../../../env.ts";
import type { ItemStore } from "../../home/item-store.ts";
import { type RunSpec, type RunStore, runningBody } from "../../home/run-store.ts";
import type { TurnStore } from "../../home/turn-store.ts";
import type { Stub } from "../../objects/objects.ts";
import { ToldTogether } from "../../objects/told-together.ts";
import { entryOf, type IndexEntry, type KeptResponse, nextAt } from "./entry.ts";
import { MAX_MISSING } from "./response-index.ts";

/**
 * Reports the responses of a home to the index of its tenant, if the deployment has one (`RESPONSE_INDEX`). A response is
 * reported beside its answer. The reporting process may die, so the home's alarm compares the list with the stored responses.
 */

/** Most entries of a tenant that wait in one isolate. An alarm reports the others. */
const MAX_WAITING = 200;

const together = new ToldTogether<IndexEntry>(MAX_WAITING);

/** The stores of its home that it reads. */
interface Kept {
  turns: TurnStore;
  items: ItemStore;
  runs: RunStore;
}

export class HomeIndex {
  readonly #kept: Kept;
  readonly #who: { tenant: string; home: string };
  readonly #env: Env;
  /** Turns whose report is not known to have arrived. */
  readonly #untold = new Map<string, number>();
  /** Turns that were removed from the list. */
  readonly #removed = new Set<string>();
  /** True once this instance of the object has compared. */
  #isCompared = false;

  constructor(kept: Kept, who: { tenant: string; home: string }, env: Env) {
    this.#kept = kept;
    this.#who = who;
    this.#env = env;
  }

  /** Tells whether the deployment lists responses. */
  get isOn(): boolean {
    return loadConfig(this.#env).listsResponses;
  }

  /** True while a removal is not known to have arrived. An object without storage has no alarm to repeat it. */
  get isBehind(): boolean {
    return this.#removed.values().some((turn) => this.#untold.has(turn));
  }

  /** Reports a response soon that was stored just now, together with other homes of the tenant. Never rejects. */
  async tell(kept: KeptResponse): Promise<void> {
    const endedAt = Date.now();
    this.#untold.set(kept.turn, endedAt);
    const { turns } = this.#kept;
    const { removals } = turns;
    // The answer goes first.
    await scheduler.wait(0);
    if (removals === turns.removals || turns.hasResponse(kept.turn)) await this.#tell(kept, endedAt);
    else this.#untold.delete(kept.turn);
  }

  /** The same for a run that has begun. */
  async tellRun({ turn, createdAt, input, request, ...spec }: RunSpec): Promise<void> {
    if (!this.isOn) return;
    const status = request.background ? "queued" : "in_progress";
    const { head, output } = runningBody({ turn, createdAt, input, request, ...spec }, status);
    await this.#tell({ turn, createdAt, input: JSON.stringify(input), output, response: head }, null);
  }

  /** The same for a response that has changed: an item was removed. */
  async tellAgain(turn: string): Promise<void> {
    this.#removed.delete(turn);
    const kept = this.isOn ? this.#read(turn) : undefined;
    if (kept) await this.#tell(kept, undefined);
  }

  async #tell(kept: KeptResponse, endedAt: number | null | undefined): Promise<void> {
    const value = this.#entry(kept, endedAt);
    this.#untold.set(kept.turn, value.at);
    const onTold = () => {
      if (this.#untold.get(kept.turn) === value.at) this.#untold.delete(kept.turn);
    };
    await together.tell(this.#who.tenant, value.id, { value, onTold }, (batch) =>
      this.#isHeard(async (index) => index.take(batch)),
    );
  }

  /** Removes a response from the list. True if it is removed. Never rejects. */
  remove(turn: string): Promise<boolean> {
    const id = responseId({ home: this.#who.home, turn });
    const at = nextAt();
    together.withdraw(this.#who.tenant, id);
    this.#removed.add(turn);
    this.#untold.set(turn, at);
    return this.#isHeard(async (index) => {
      await index.remove([id], at);
      if (this.#untold.get(turn) === at) this.#untold.delete(turn);
    });
  }

  /** To be called when rows have changed otherwise. */
  forget(): void {
    this.#isCompared = false;
  }

  /** Makes the list agree with what is stored here. True if it does. Never rejects. */
  async compare(): Promise<boolean> {
    if (!this.isOn || (this.#isCompared && this.#untold.size === 0)) return true;
    return this.#isHeard(async (index) => {
      const { home } = this.#who;
      const seen = [...this.#untold];
      const ids = this.#kept.turns.responses().map((turn) => responseId({ home, turn }));
      for (let told = 0; told <= ids.length; told += MAX_MISSING) {
        const { missing, extra } = await index.compare(`resp_${home}`, ids);
        const gone = extra.filter((id) => !this.#isKept(id));
        if (gone.length > 0) await index.remove(gone, nextAt());
        const entries = missing.flatMap((id) => {
          const turn = parseResponseId(id)?.turn ?? "";
          const kept = this.#removed.has(turn) ? undefined : this.#read(turn);
          return kept ? [this.#entry(kept, undefined)] : [];
        });
        if (entries.length === 0) break;
        await index.take(entries);
      }
      this.#isCompared = true;
      for (const [turn, at] of seen) if (this.#untold.get(turn) === at) this.#untold.delete(turn);
    });
  }

  #isKept(id: string): boolean {
    const turn = parseResponseId(id)?.turn ?? "";
    return this.#kept.turns.hasResponse(turn) || this.#kept.runs.turns().includes(turn);
  }

  #read(turn: string): KeptResponse | undefined {
    const kept = this.#kept.turns.hasResponse(turn) ? this.#kept.turns.settled(turn) : undefined;
    return kept && kept.response !== null ? { ...kept, response: kept.response } : undefined;
  }

  #entry(kept: KeptResponse, endedAt: number | null | undefined): IndexEntry {
    return entryOf(this.#who.home, kept, (id) => this.#kept.items.isTakenOut(id), endedAt);
  }

  async #isHeard(work: (index: Stub<"RESPONSE_INDEXES">) => Promise<void>): Promise<boolean> {
    try {
      await work(this.#env.RESPONSE_INDEXES.getByName(this.#who.tenant));
      return true;
    } catch (error) {
      const name = error instanceof Error ? error.name : typeof error;
      console.error(logLine({ level: "error", response_index: "not told", error: name }));
      return false;
    }
  }
}
