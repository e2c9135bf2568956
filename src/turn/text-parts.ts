import type { CitationFilter, CitedText } from "../contract/citations.ts";
import type { Phase, TokenLogprob } from "../contract/engine.ts";
import type { OutputItem } from "../protocol/response.ts";
import { deltaHead, type EventWriter } from "./output-events.ts";
import type { OutputSize } from "./output-size.ts";
import { addText, type OpenPart, type TurnState } from "./state.ts";

/**
 * Messages and reasoning: items whose content parts take text. Of both together at most one is open at a time.
 * Their events in OpenAI's order: item added → part added → deltas → text done → part done → item done.
 */

type TextItem = Extract<OutputItem, { type: "message" | "reasoning" }>;

/** The open part with what its deltas need. */
interface OpenText {
  item: TextItem;
  part: OpenPart;
  /** The JSON of its delta events up to their sequence number. */
  deltaHead: string;
  /** Absent where nothing can be cited. */
  filter: CitationFilter | undefined;
}

const DELTA_TYPES = {
  output_text: "response.output_text.delta",
  refusal: "response.refusal.delta",
  reasoning_text: "response.reasoning_text.delta",
} as const;

export class TextParts {
  readonly #state: TurnState;
  readonly #writer: EventWriter;
  readonly #size: OutputSize;
  readonly #citations: (() => CitationFilter) | undefined;
  #open: OpenText | undefined;

  /** `citations` makes a filter for a part, where there is something to cite. A part that is open in the state goes on. */
  constructor(state: TurnState, writer: EventWriter, size: OutputSize, citations: (() => CitationFilter) | undefined) {
    this.#state = state;
    this.#writer = writer;
    this.#size = size;
    this.#citations = citations;
    const item = state.openPart && state.output[state.openPart.outputIndex];
    if (!state.openPart || (item?.type !== "message" && item?.type !== "reasoning")) return;
    this.#open = this.#openText(item, state.openPart, state.buffered);
  }

  /** What was said and no event has told yet, because it may become a citation. */
  get buffered(): string {
    return this.#open?.filter?.pending ?? "";
  }

  /** Whether text of this kind goes on in the open part. */
  isOpen(kind: OpenPart["kind"]): boolean {
    return this.#open?.part.kind === kind;
  }

  /** Whether a part of this kind begins within the open item: a refusal may follow text. */
  joinsOpenItem(kind: OpenPart["kind"]): boolean {
    return this.#open?.item.type === itemType(kind);
  }

  /** Begins a part of this kind: within the open item if there is one, which then is of its type, or in a new one. */
  begin(kind: OpenPart["kind"], phase: Phase | undefined): void {
    const open = this.#open;
    if (open) this.#endPart(open, false);
    const item = open?.item ?? this.#newItem(itemType(kind), phase);
    const outputIndex = open?.part.outputIndex ?? this.#writer.addItem(item);
    const content_index = item.content?.length ?? 0;
    this.#size.addFrames(1);
    const part = newPart(kind);
    this.#writer.emit({
      type: "response.content_part.added",
      item_id: item.id,
      output_index: outputIndex,
      content_index,
      part,
    });
    if (this.#state.openPart) this.#open = this.#openText(item, this.#state.openPart, "");
  }

  /** Adds text to the open part. */
  append(text: string, logprobs?: TokenLogprob[]): void {
    const open = this.#open;
    if (!open) return;
    if (open.filter) this.#appendCited(open, open.filter.push(text), logprobs);
    else this.#append(open, text, logprobs);
  }

  /** Ends the open part and its item. `isSilent`: no event says so. */
  close(status: "completed" | "incomplete", isSilent: boolean): void {
    const open = this.#open;
    if (!open) return;
    this.#endPart(open, isSilent);
    const { item } = open;
    item.status = status;
    const output_index = open.part.outputIndex;
    this.#writer.emit({ type: "response.output_item.done", output_index, item }, isSilent);
  }

  /** The output_index of the open item. */
  get outputIndex(): number | undefined {
    return this.#open?.part.outputIndex;
  }

  /** The open item with its open part, also with what is buffered: a model goes on after all that it has said. */
  partialItem(): OutputItem | undefined {
    if (!this.#open) return undefined;
    const { item, part } = this.#open;
    const content = partContent({ ...part, text: part.text + this.buffered });
    return { ...item, content: [...(item.content ?? []), content] } as OutputItem;
  }

  /** Forgets the open part: its item is taken back. */
  withdraw(): void {
    this.#open = undefined;
    this.#state.openPart = undefined;
  }

  #append({ part, deltaHead }: OpenText, text: string, logprobs?: TokenLogprob[]): void {
    addText(part, text, logprobs);
    this.#size.addText(text);
    const json = logprobs ? JSON.stringify(logprobs) : "[]";
    if (logprobs) this.#size.addJson(json.length);
    const extra = part.kind === "output_text" ? `,"logprobs":${json}` : "";
    this.#writer.delta(DELTA_TYPES[part.kind], deltaHead, text, extra);
  }

  /** Text with the citations in it made links, each with an annotation. */
  #appendCited(open: OpenText, { text, annotations }: CitedText, logprobs?: TokenLogprob[]): void {
    if (text !== "" || logprobs?.length) this.#append(open, text, logprobs);
    for (const annotation of annotations) {
      this.#size.addJson(JSON.stringify(annotation).length);
      this.#writer.emit({
        type: "response.output_text.annotation.added",
        ...addressOf(open),
        annotation_index: open.part.annotations.length,
        annotation,
      });
    }
  }

  #newItem(type: TextItem["type"], phase: Phase | undefined): TextItem {
    const id = this.#writer.newItemId(type);
    return type === "message"
      ? { id, type, status: "in_progress", role: "assistant", content: [], ...(phase && { phase }) }
      : { id, type, status: "in_progress", summary: [], content: [] };
  }

  #openText(item: TextItem, part: OpenPart, buffered: string): OpenText {
    const open: OpenText = { item, part, deltaHead: "", filter: undefined };
    open.deltaHead = deltaHead(DELTA_TYPES[part.kind], addressOf(open));
    if (this.#citations && part.kind === "output_text") {
      open.filter = this.#citations();
      // Citations are counted from the beginning of the part.
      open.filter.push(part.text + buffered);
    }
    return open;
  }

  #endPart(open: OpenText, isSilent: boolean): void {
    if (open.filter) this.#appendCited(open, open.filter.end());
    this.#open = undefined;
    const { part } = open;
    const at = addressOf(open);
    this.#writer.emit(textDone(part, at), isSilent);
    this.#writer.emit({ type: "response.content_part.done", ...at, part: partContent(part) }, isSilent);
  }
}

function itemType(kind: OpenPart["kind"]): TextItem["type"] {
  return kind === "reasoning_text" ? "reasoning" : "message";
}

function addressOf({ item, part }: OpenText) {
  return { item_id: item.id, output_index: part.outputIndex, content_index: part.contentIndex };
}

function newPart(kind: OpenPart["kind"]) {
  return partContent({ kind, outputIndex: 0, contentIndex: 0, text: "", logprobs: [], annotations: [] });
}

function textDone(part: OpenPart, at: ReturnType<typeof addressOf>) {
  switch (part.kind) {
    case "output_text":
      return { type: "response.output_text.done" as const, ...at, text: part.text, logprobs: part.logprobs };
    case "refusal":
      return { type: "response.refusal.done" as const, ...at, refusal: part.text };
    case "reasoning_text":
      return { type: "response.reasoning_text.done" as const, ...at, text: part.text };
  }
}

/** The part as the API gives it, with the text so far. */
function partContent(part: OpenPart) {
  switch (part.kind) {
    case "output_text":
      return { type: part.kind, text: part.text, annotations: part.annotations, logprobs: part.logprobs };
    case "refusal":
      return { type: part.kind, refusal: part.text };
    case "reasoning_text":
      return { type: part.kind, text: part.text };
  }
}
