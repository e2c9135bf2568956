import { invalidRequest } from "@responses-edge/responses-api/errors";
import { isOfOtherAgent } from "@responses-edge/responses-api/items/multi-agent";
import {
  answeredId,
  calledId,
  type Item,
  isAsyncCall,
  type OutputItem,
  shownAgain,
} from "@responses-edge/responses-api/items/registry";
import type { TurnOptions } from "./options.ts";
import { FRAME_LENGTH } from "./output-events.ts";
import type { AsideEvent, SteeredTurn } from "./steering.ts";
import type { TurnOutput } from "./turn-output.ts";
import { addWhole } from "./whole-items.ts";

/**
 * Outputs of a client's calls that come while the turn runs (openai 7.59 beta `BetaResponseInjectEvent`): of calls after
 * which the model goes on, and of calls of agents. They become items of the turn's output, after their calls.
 */
export class InjectedOutputs implements SteeredTurn {
  readonly #options: Pick<TurnOptions, "past" | "tools" | "host">;
  readonly #output: TurnOutput;
  #isOver = false;
  /** The calls of history and input whose outputs may come. */
  #ofPast: Calls | undefined;

  /** Attaches the turn to its steering, if it has one. */
  constructor(options: Pick<TurnOptions, "past" | "tools" | "host">, output: TurnOutput) {
    this.#options = options;
    this.#output = output;
    options.host.steering?.attach(this);
  }

  say(event: AsideEvent): void {
    this.#output.writer.aside(event);
    this.#options.host.sink?.flush();
  }

  show(items: readonly OutputItem[]): void {
    const { writer, size } = this.#output;
    for (const item of items) {
      const whole = shownAgain(item, (type) => writer.newItemId(type));
      size.length += FRAME_LENGTH + JSON.stringify(whole).length;
      addWhole(writer, whole);
    }
    this.#options.host.sink?.flush();
  }

  check(items: readonly Item[], waiting: readonly Item[]): void {
    const calls = this.#openCalls();
    for (const item of waiting) calls.delete(answeredId(item) ?? "");
    for (const [index, item] of items.entries()) {
      const id = answeredId(item);
      const call = id === undefined ? undefined : calls.get(id);
      if (id === undefined || !call || item.type !== `${call.type}_output`) {
        const message = `'input[${index}]' is not the output of an asynchronous call, or of an agent's call, that has none yet.`;
        throw invalidRequest(`input[${index}]`, message);
      }
      calls.delete(id);
    }
    if (!this.#output.size.fits([...waiting, ...items])) {
      throw invalidRequest("input", "The outputs are too large for this response. Send them with the next request.");
    }
  }

  /** While calls are answered, no item is being written. */
  injected(): void {
    if (this.#output.state.answering) this.take();
  }

  /** Makes the outputs that wait part of the turn, and gives their number. No item may be being written. */
  take(): number {
    if (this.#isOver) return 0;
    const { host, tools } = this.#options;
    let count = 0;
    for (const { items, taken } of host.steering?.take() ?? []) {
      const calls = this.#openCalls();
      this.show(items.map((item) => ({ ...item, agent: calls.get(answeredId(item) ?? "")?.agent }) as OutputItem));
      tools.session?.inject(items);
      taken();
      count += items.length;
    }
    return count;
  }

  /** The turn takes nothing more. */
  close(): void {
    this.#isOver = true;
  }

  /** The calls whose outputs may come, by their ids. */
  #openCalls(): Calls {
    const { history, input } = this.#options.past;
    this.#ofPast ??= openCalls(openCalls(new Map(), history), input);
    return openCalls(new Map(this.#ofPast), this.#output.state.output as Item[]);
  }
}

type Calls = Map<string, Item & { agent?: unknown }>;

/** Adds the calls of items to `calls`, and removes those that they answer. */
function openCalls(calls: Calls, items: readonly Item[]): Calls {
  for (const item of items) {
    const id = calledId(item);
    if (id !== undefined && (isAsyncCall(item) || isOfOtherAgent(item))) calls.set(id, item);
    calls.delete(answeredId(item) ?? "");
  }
  return calls;
}
