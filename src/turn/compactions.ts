import type { EventWriter } from "./output-events.ts";
import type { OutputSize } from "./output-size.ts";
import { openCompaction, type TurnState } from "./state.ts";

/** `compaction` items: what stands from now on for all that came before. */
export class Compactions {
  readonly #state: TurnState;
  readonly #writer: EventWriter;
  readonly #size: OutputSize;

  constructor(state: TurnState, writer: EventWriter, size: OutputSize) {
    this.#state = state;
    this.#writer = writer;
    this.#size = size;
  }

  /**
   * Begins one, or goes on with one that a crash has cut off. The first words of its summary are there: OpenAI says so
   * ("emitted when new summary content is sampled").
   */
  begin(): void {
    if (openCompaction(this.#state) !== undefined) return;
    const id = this.#writer.newItemId("compaction");
    const output_index = this.#writer.addItem({ id, type: "compaction", encrypted_content: "" });
    this.#writer.emit({ type: "response.compaction.compacting", item_id: id, output_index });
  }

  /** Ends the one that has begun. */
  end(content: string): void {
    const index = openCompaction(this.#state);
    const item = index === undefined ? undefined : this.#state.output[index];
    if (index === undefined || item?.type !== "compaction") return;
    this.#size.addFrames(1);
    this.#size.addJson(content.length);
    const whole = { ...item, encrypted_content: content };
    this.#writer.emit({ type: "response.output_item.done", output_index: index, item: whole });
  }
}
