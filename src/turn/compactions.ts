import type { OutputParts } from "./output-size.ts";
import { openCompaction } from "./state.ts";

/** `compaction` items: what stands from now on for all that came before. */
export class Compactions {
  readonly #output: OutputParts;

  constructor(output: OutputParts) {
    this.#output = output;
  }

  /**
   * Begins one, or goes on with one that a crash has cut off. The first words of its summary are there: OpenAI says so
   * ("emitted when new summary content is sampled").
   */
  begin(): void {
    if (openCompaction(this.#output.state) !== undefined) return;
    const id = this.#output.writer.newItemId("compaction");
    const output_index = this.#output.writer.addItem({ id, type: "compaction", encrypted_content: "" });
    this.#output.writer.emit({ type: "response.compaction.compacting", item_id: id, output_index });
  }

  /** Ends the one that has begun. */
  end(content: string): void {
    const index = openCompaction(this.#output.state);
    const item = index === undefined ? undefined : this.#output.state.output[index];
    if (index === undefined || item?.type !== "compaction") return;
    this.#output.size.addFrames(1);
    this.#output.size.addJson(content.length);
    const whole = { ...item, encrypted_content: content };
    this.#output.writer.emit({ type: "response.output_item.done", output_index: index, item: whole });
  }
}
