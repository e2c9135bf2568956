import type { OutputItem } from "@responses-edge/responses-api/items/registry";
import type { Phase, TokenLogprob } from "./contract/engine.ts";
import type { Citation, CitationFilter, CitedText, ToolSession } from "./contract/tool-session.ts";
import { deltaHead, FRAME_LENGTH, type OutputParts } from "./output-events.ts";
import { type OpenPart, withThoughts } from "./state.ts";

/**
 * Messages and reasoning: items whose parts take text. At most one of them is open at a time. Their events in OpenAI's
 * order: item added → part added → deltas → text done → part done → item done. Hidden reasoning has only the first and
 * the last event.
 *
 * Reasoning that is sealed with the next call is done when that call is, and held until then.
 */

type TextItem = Extract<OutputItem, { type: "message" | "reasoning" }>;
type ThoughtItem = Extract<OutputItem, { type: "reasoning" }>;

/** The open part, with the data that its deltas need. */
interface OpenText {
  item: TextItem;
  part: OpenPart;
  /** The fields that identify it in the events of its text; those of a summary have another index. */
  at: { item_id: string; output_index: number; content_index: number };
  /** The JSON of its delta events up to their sequence number. */
  deltaHead: string;
  /** Absent if nothing can be cited. */
  filter: CitationFilter | undefined;
}

/** Reasoning with complete text whose item is not done. */
interface HeldThought {
  item: ThoughtItem;
  outputIndex: number;
}

const DELTA_TYPES = {
  output_text: "response.output_text.delta",
  refusal: "response.refusal.delta",
  reasoning_text: "response.reasoning_text.delta",
  summary_text: "response.reasoning_summary_text.delta",
} as const;

interface TextPartsOptions {
  /** Knows the sources that can be cited. */
  session: Pick<ToolSession, "citations" | "citationsIn"> | undefined;
  /** Gives the `encrypted_content` of reasoning that is about to be done, if there are keys for it. */
  seal: ((item: ThoughtItem, text: string) => string) | undefined;
}

export class TextParts {
  readonly #output: OutputParts;
  readonly #options: TextPartsOptions;
  #open: OpenText | undefined;
  #held: HeldThought | undefined;

  /** A part that is open in the state continues, and so does held reasoning. */
  constructor(output: OutputParts, options: TextPartsOptions) {
    this.#output = output;
    this.#options = options;
    const { state } = output;
    const { openPart } = state;
    if (openPart) {
      const item = state.output[openPart.outputIndex];
      if (item?.type === "message" || item?.type === "reasoning") {
        this.#open = this.#openText(item, openPart, state.buffered);
      }
      return;
    }
    // Reasoning that was held when the turn was cut off: its text is complete, its item is not done.
    const outputIndex = state.output.findLastIndex(({ type }) => type === "reasoning");
    const item = state.output[outputIndex];
    if (item?.type === "reasoning" && item.status === "in_progress" && !state.superseded.has(item.id)) {
      this.#held = { item, outputIndex };
    }
  }

  /** Text that no event has yet, because it may become a citation. */
  get buffered(): string {
    return this.#open?.filter?.pending ?? "";
  }

  /** Tells whether reasoning is held. */
  get holds(): boolean {
    return this.#held !== undefined;
  }

  /** Begins a part of this kind: in the open item, which must have its type, or in a new one. */
  begin(kind: OpenPart["kind"], phase: Phase | undefined): void {
    const open = this.#open;
    if (open) this.#endPart(open, false);
    let item = open?.item;
    if (!item) {
      const type = ITEM_TYPES[kind];
      const id = this.#output.writer.newItemId(type);
      item =
        type === "message"
          ? { id, type, status: "in_progress", role: "assistant", content: [], ...(phase && { phase }) }
          : { id, type, status: "in_progress", summary: [], ...(kind === "reasoning_text" && { content: [] }) };
    }
    const outputIndex = open?.part.outputIndex ?? this.#output.writer.addItem(item);
    this.#output.size.length += FRAME_LENGTH;
    const at = { item_id: item.id, output_index: outputIndex };
    if (kind === "hidden_text") this.#output.writer.record({ thought: "" });
    else if (kind === "summary_text") {
      const summary_index = "summary" in item ? item.summary.length : 0;
      const part = { type: kind, text: "" };
      this.#output.writer.emit({ type: "response.reasoning_summary_part.added", ...at, summary_index, part });
    } else {
      const content_index = item.content?.length ?? 0;
      const part = partContent({ kind, outputIndex, index: content_index, text: "", logprobs: [], annotations: [] });
      this.#output.writer.emit({ type: "response.content_part.added", ...at, content_index, part });
    }
    if (this.#output.state.openPart) this.#open = this.#openText(item, this.#output.state.openPart, "");
  }

  /** Adds text to the open part. `isFiltered`: its citations are links already. */
  append(text: string, logprobs?: TokenLogprob[], isFiltered = false): void {
    const open = this.#open;
    if (!open) return;
    const { part, filter, deltaHead } = open;
    if (filter && !isFiltered) {
      this.#appendCited(open, filter.push(text), logprobs);
      return;
    }
    const { size, writer } = this.#output;
    size.addText(text);
    if (part.kind === "hidden_text") {
      writer.record({ thought: text });
      return;
    }
    part.text += text;
    let json = "[]";
    if (logprobs) {
      part.logprobs.push(...logprobs);
      json = JSON.stringify(logprobs);
      size.length += json.length;
    }
    writer.delta(DELTA_TYPES[part.kind], deltaHead, text, part.kind === "output_text" ? `,"logprobs":${json}` : "");
  }

  /**
   * Ends the open part and its item. `isSilent`: without events. `holds`: reasoning is held; otherwise it ends, too.
   */
  close(status: "completed" | "incomplete", isSilent: boolean, holds = false): void {
    const open = this.#open;
    if (open) {
      this.#endPart(open, isSilent);
      const { item, part } = open;
      if (item.type === "reasoning" && holds) this.#held = { item, outputIndex: part.outputIndex };
      else this.#finish(item, part.outputIndex, status, isSilent);
    }
    if (this.#held && !holds) this.release(isSilent);
  }

  /** Ends the item of held reasoning. */
  release(isSilent = false): void {
    const held = this.#held;
    this.#held = undefined;
    if (held) this.#finish(held.item, held.outputIndex, "completed", isSilent);
  }

  #finish(item: TextItem, output_index: number, status: "completed" | "incomplete", isSilent: boolean): void {
    item.status = status;
    if (item.type === "reasoning" && !isSilent) {
      const [whole = item] = withThoughts(this.#output.state, [item]);
      const sealed = this.#options.seal?.(item, textOf(whole));
      if (sealed !== undefined && this.#output.size.fits(sealed)) {
        this.#output.size.length += sealed.length;
        item.encrypted_content = sealed;
      }
    }
    this.#output.writer.emit({ type: "response.output_item.done", output_index, item }, isSilent);
  }

  /** The output_index of the open item. */
  get outputIndex(): number | undefined {
    return this.#open?.part.outputIndex;
  }

  /**
   * The open item with its open part, including buffered text: a model continues after everything that it has
   * generated.
   */
  partialItem(): OutputItem | undefined {
    if (!this.#open) return undefined;
    const { item, part } = this.#open;
    if (part.kind === "summary_text" && item.type === "reasoning") {
      return { ...item, summary: [...item.summary, { type: part.kind, text: part.text }] };
    }
    const content = partContent({ ...part, text: part.text + this.buffered });
    return { ...item, content: [...(item.content ?? []), content] } as OutputItem;
  }

  /** Forgets the open part, because its item is withdrawn. */
  withdraw(): void {
    this.#open = undefined;
    this.#held = undefined;
    this.#output.state.openPart = undefined;
  }

  /** Adds text whose citations were made links, each with an annotation. */
  #appendCited(open: OpenText, { text, annotations }: CitedText, logprobs?: TokenLogprob[]): void {
    if (text !== "" || logprobs?.length) this.append(text, logprobs, true);
    this.#cite(open, annotations);
  }

  #cite(open: OpenText, annotations: readonly Citation[]): void {
    for (const annotation of annotations) {
      this.#output.size.length += JSON.stringify(annotation).length;
      this.#output.writer.emit({
        type: "response.output_text.annotation.added",
        ...open.at,
        annotation_index: open.part.annotations.length,
        annotation,
      });
    }
  }

  #openText(item: TextItem, part: OpenPart, buffered: string): OpenText {
    const place = { item_id: item.id, output_index: part.outputIndex };
    const at = { ...place, content_index: part.index };
    const open: OpenText = { item, part, at, deltaHead: "", filter: undefined };
    if (part.kind === "summary_text") {
      open.deltaHead = deltaHead(DELTA_TYPES[part.kind], { ...place, summary_index: part.index });
    } else if (part.kind !== "hidden_text") open.deltaHead = deltaHead(DELTA_TYPES[part.kind], at);
    const { session } = this.#options;
    if (session?.citations && part.kind === "output_text") {
      open.filter = session.citations();
      // Citations are counted from the beginning of the part.
      open.filter.push(part.text + buffered);
    }
    return open;
  }

  #endPart(open: OpenText, isSilent: boolean): void {
    if (open.filter) this.#appendCited(open, open.filter.end());
    const { citationsIn } = this.#options.session ?? {};
    if (citationsIn && open.part.kind === "output_text") this.#cite(open, citationsIn(open.part.text));
    this.#open = undefined;
    const { item, part, at } = open;
    const { kind, text, logprobs } = part;
    const { writer } = this.#output;
    switch (kind) {
      case "hidden_text":
        writer.record({ thought_ended: item.id });
        return;
      case "summary_text": {
        const { content_index: summary_index, ...place } = at;
        writer.emit({ type: "response.reasoning_summary_text.done", ...place, summary_index, text }, isSilent);
        const whole = { type: kind, text };
        writer.emit({ type: "response.reasoning_summary_part.done", ...place, summary_index, part: whole }, isSilent);
        return;
      }
      case "output_text":
        writer.emit({ type: "response.output_text.done", ...at, text, logprobs }, isSilent);
        break;
      case "refusal":
        writer.emit({ type: "response.refusal.done", ...at, refusal: text }, isSilent);
        break;
      case "reasoning_text":
        writer.emit({ type: "response.reasoning_text.done", ...at, text }, isSilent);
    }
    writer.emit({ type: "response.content_part.done", ...at, part: partContent(part) }, isSilent);
  }
}

function textOf({ content, summary }: ThoughtItem): string {
  return (content?.length ? content : summary).map(({ text }) => text).join("\n");
}

/** The types of the items that have parts of each kind. */
export const ITEM_TYPES = {
  output_text: "message",
  refusal: "message",
  reasoning_text: "reasoning",
  summary_text: "reasoning",
  hidden_text: "reasoning",
} as const satisfies Record<OpenPart["kind"], TextItem["type"]>;

/** The part in the API's form, with the text so far. */
function partContent(part: OpenPart) {
  switch (part.kind) {
    case "output_text":
      return { type: part.kind, text: part.text, annotations: part.annotations, logprobs: part.logprobs };
    case "refusal":
      return { type: part.kind, refusal: part.text };
    case "reasoning_text":
    case "summary_text":
    case "hidden_text":
      return { type: "reasoning_text" as const, text: part.text };
  }
}
