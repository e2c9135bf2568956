import type { ErrorFields } from "../protocol/errors.ts";
import { isRecord, type TurnRecord } from "../turn/records.ts";

/**
 * The event log of a run that has ended, as it is kept with its turn: only what the turn itself does not tell. Ids and
 * texts are in the turn's response and output, which stand here as one text; a kept log has their places in it.
 *
 * Most events are deltas. Those that follow each other and differ in nothing but their numbers and texts are kept
 * together: a frame, where their text stands, and how long each one's is. What else an event says is kept as pieces, of
 * which the longer ones are places, too. A log is kept so only when each event was read back as it was.
 */

/** A block of events is read as one. UTF-16 units of these events. */
const BLOCK_LENGTH = 64 * 1024;

/** A longer log is not kept so. An event counts as no more than a block. UTF-16 units. */
const MAX_LOG_LENGTH = 16 * 1024 * 1024;

/** A reader reads the turn's texts anew for each block. A log is not kept so where all of it would take more. UTF-16 units. */
const MAX_READ_LENGTH = 256 * 1024 * 1024;

/** A piece that is shorter than this is kept as it is. */
const MIN_PIECE_LENGTH = 32;

/** Texts are found by their pieces of this length. */
const ANCHOR_LENGTH = 16;

/** Of a turn's text no more pieces than this are noted, so that its pieces are found. */
const MAX_ANCHORS = 64 * 1024;

/** All searches of a log together look through no more of the turn's text than this. UTF-16 units. */
const MAX_SEARCHED_LENGTH = 64 * 1024 * 1024;

/** Where a text begins in that of the turn, or the text itself. */
type Place = number | string;

/** Texts that follow each other, and the length of each. */
type Texts = [Place, lengths: number[]];

/** What consecutive deltas have in common: their JSON up to the number, and whether they have `logprobs`. */
type Frame = [head: string, hasLogprobs: boolean];

/** Deltas, by the indices of their frame and of their padding (-1: none), with their texts and their logprobs. */
type Deltas = [frame: number, padding: number, ...texts: Texts, ...logprobs: Texts | []];

/** Any other event: its JSON in pieces, each a text or a place and a length. It begins with a text. */
type Pieces = [string, ...(string | number)[]];

type Block = [from: number, to: number, ...(Deltas | Pieces)[]];

interface KeptLog {
  frames: Frame[];
  /** What obfuscation is cut from. */
  paddings: string[];
  blocks: Block[];
  /** Why the run has failed. */
  failure?: ErrorFields;
}

/** Events `from` to `to`, as JSON texts. */
export interface EventBlock {
  from: number;
  to: number;
  events: string[];
}

/**
 * The lines of a whole log, from event 0 to the last of `count`, as they are kept with a turn whose texts are `text`.
 * Undefined where they cannot be, because they are too long, or would not be read back as they are.
 */
export function keepLog(lines: Iterable<string>, count: number, text: string): string | undefined {
  const keeper = new LogKeeper(text);
  let length = 0;
  for (const line of lines) {
    length += Math.min(line.length, BLOCK_LENGTH);
    if (length > MAX_LOG_LENGTH || (length / BLOCK_LENGTH) * text.length > MAX_READ_LENGTH) return undefined;
    if (isRecord(line)) keeper.record(line);
    else if (!keeper.event(line)) return undefined;
  }
  return keeper.end(count);
}

/** The events of a kept log from the one after `after` on, as far as they are one block; undefined at its end. */
export function readKeptLog(kept: string, text: string, after: number): EventBlock | undefined {
  const log = JSON.parse(kept) as KeptLog;
  const block = log.blocks.find(([, to]) => to > after);
  if (!block) return undefined;
  const [first, to] = block;
  const from = Math.max(first, after + 1);
  return { from, to, events: eventsOf(log, block, text).slice(from - first) };
}

/** Why the run of a kept log has failed; undefined where it has not. */
export function failureIn(kept: string): ErrorFields | undefined {
  return (JSON.parse(kept) as KeptLog).failure;
}

function eventsOf({ frames, paddings }: KeptLog, [first, , ...entries]: Block, text: string): string[] {
  const events: string[] = [];
  for (const entry of entries) {
    if (isPieces(entry)) {
      events.push(joinPieces(entry, text));
      continue;
    }
    const [frame, padding, place, lengths, logprobsPlace = "", logprobsLengths = []] = entry;
    const [head = "", hasLogprobs = false] = frames[frame] ?? [];
    const texts = textsAt(text, place, lengths, 0);
    const logprobs = textsAt(text, logprobsPlace, logprobsLengths, 1);
    for (const [index, delta] of texts.entries()) {
      const extra = hasLogprobs ? `,"logprobs":[${logprobs[index] ?? ""}]` : "";
      const obfuscation = padding < 0 ? "" : `,"obfuscation":"${obfuscationOf(delta, paddings[padding] ?? "")}"`;
      events.push(`${head}${first + events.length},"delta":"${delta}"${extra}${obfuscation}}`);
    }
  }
  return events;
}

function isPieces(entry: Deltas | Pieces): entry is Pieces {
  return typeof entry[0] === "string";
}

function joinPieces(pieces: Pieces, text: string): string {
  let joined = "";
  for (let index = 0; index < pieces.length; index += 1) {
    const piece = pieces[index];
    if (typeof piece === "string") joined += piece;
    else if (piece !== undefined) {
      index += 1;
      joined += text.slice(piece, piece + (pieces[index] as number));
    }
  }
  return joined;
}

/** Texts of these lengths; `gap` is what stands between two of them that are not empty. */
function textsAt(text: string, place: Place, lengths: readonly number[], gap: number): string[] {
  const source = typeof place === "string" ? place : text;
  let at = typeof place === "string" ? 0 : place;
  return lengths.map((length) => {
    const found = source.slice(at, at + length);
    if (length > 0) at += length + gap;
    return found;
  });
}

/** The obfuscation of a delta, by its JSON, as `EventWriter.delta` makes it. */
function obfuscationOf(json: string, padding: string): string {
  return padding.slice(0, obfuscationLength(json));
}

function obfuscationLength(json: string): number {
  const length = json.includes("\\") ? (JSON.parse(`"${json}"`) as string).length : json.length;
  return 16 - (length % 16);
}

/** A delta event, taken apart. Texts are JSON without their quotes. */
interface DeltaLine {
  head: string;
  sequence: number;
  text: string;
  /** The elements of `logprobs`; undefined where there is no such key. */
  logprobs: string | undefined;
  obfuscation: string | undefined;
}

/** Deltas that are kept together. */
interface OpenDeltas {
  head: string;
  hasLogprobs: boolean;
  padding: string | undefined;
  texts: string[];
  logprobs: string[];
}

class LogKeeper {
  readonly #text: string;
  readonly #log: KeptLog = { frames: [], paddings: [], blocks: [] };
  /** The first place of each piece at a multiple of a number of units. */
  #anchors: Map<string, number> | undefined;
  #searched = 0;
  /** Where the last text that was found ends: the next one often begins there. */
  #found = 0;
  #block: (Deltas | Pieces)[] = [];
  /** The lines of the block. */
  #lines: string[] = [];
  #length = 0;
  #from = 0;
  #open: OpenDeltas | undefined;

  constructor(text: string) {
    this.#text = text;
  }

  record(line: string): void {
    const [record] = JSON.parse(line) as [TurnRecord];
    if ("failure" in record) this.#log.failure = record.failure;
  }

  /** Takes the next event; false where it, or one before it, would not be read back as it is. */
  event(line: string): boolean {
    const delta = readDelta(line);
    if (delta?.sequence === this.#from + this.#lines.length) this.#delta(delta);
    else {
      this.#close();
      this.#block.push(this.#pieces(line));
    }
    this.#lines.push(line);
    this.#length += line.length;
    return this.#length < BLOCK_LENGTH || this.#endBlock();
  }

  /** The log, where it has so many events. */
  end(count: number): string | undefined {
    if (!this.#endBlock() || this.#from !== count) return undefined;
    return JSON.stringify(this.#log);
  }

  #endBlock(): boolean {
    this.#close();
    const lines = this.#lines;
    if (lines.length === 0) return true;
    const block: Block = [this.#from, this.#from + lines.length - 1, ...this.#block];
    const events = eventsOf(this.#log, block, this.#text);
    if (events.length !== lines.length || lines.some((line, index) => line !== events[index])) return false;
    this.#log.blocks.push(block);
    this.#from += lines.length;
    this.#block = [];
    this.#lines = [];
    this.#length = 0;
    return true;
  }

  #delta({ head, text, logprobs, obfuscation }: DeltaLine): void {
    const hasLogprobs = logprobs !== undefined;
    let open = this.#open;
    let padding = obfuscation;
    if (open && open.head === head && open.hasLogprobs === hasLogprobs) {
      padding = longer(open.padding, obfuscation);
      if (padding === undefined && obfuscation !== undefined) open = undefined;
      else if (open.padding !== undefined && obfuscation === undefined) open = undefined;
    } else open = undefined;
    if (!open) {
      this.#close();
      padding = obfuscation;
      open = { head, hasLogprobs, padding, texts: [], logprobs: [] };
      this.#open = open;
    }
    open.padding = padding;
    open.texts.push(text);
    open.logprobs.push(logprobs ?? "");
  }

  /** Ends the deltas that are kept together. */
  #close(): void {
    const open = this.#open;
    this.#open = undefined;
    if (!open) return;
    const { frames, paddings } = this.#log;
    let frame = frames.findIndex(([head, has]) => head === open.head && has === open.hasLogprobs);
    if (frame === -1) frame = frames.push([open.head, open.hasLogprobs]) - 1;
    let padding = -1;
    if (open.padding !== undefined) {
      padding = paddings.indexOf(open.padding);
      if (padding === -1) padding = paddings.push(open.padding) - 1;
    }
    const texts = this.#texts(open.texts, "");
    const logprobs = open.logprobs.some((each) => each !== "") ? this.#texts(open.logprobs, ",") : [];
    this.#block.push([frame, padding, ...texts, ...logprobs] as Deltas);
  }

  #texts(texts: readonly string[], separator: string): Texts {
    const whole = texts.filter((text) => text !== "").join(separator);
    return [this.#find(whole), texts.map(({ length }) => length)];
  }

  /** Where a text stands in that of the turn, or the text, where it does not, or is too short to be looked for. */
  #find(wanted: string): Place {
    const text = this.#text;
    if (wanted.length < ANCHOR_LENGTH / 2) return wanted;
    let at = this.#found;
    if (!text.startsWith(wanted, at)) {
      this.#searched += text.length;
      at = this.#searched > MAX_SEARCHED_LENGTH ? -1 : text.indexOf(wanted);
    }
    if (at === -1) return wanted;
    this.#found = at + wanted.length;
    return at;
  }

  /** An event in pieces. */
  #pieces(line: string): Pieces {
    const text = this.#text;
    const pieces: Pieces = [""];
    let rest = 0;
    const keep = (to: number) => {
      const piece = line.slice(rest, to);
      if (pieces.length === 1 && rest === 0) pieces[0] = piece;
      else if (piece !== "") pieces.push(piece);
    };
    this.#anchors ??= anchorsOf(text);
    for (let at = 0; at + ANCHOR_LENGTH <= line.length; ) {
      let place = this.#anchors.get(line.slice(at, at + ANCHOR_LENGTH));
      let from = at;
      if (place === undefined) {
        at += 1;
        continue;
      }
      while (from > Math.max(rest, 1) && place > 0 && line[from - 1] === text[place - 1]) {
        from -= 1;
        place -= 1;
      }
      let to = at + ANCHOR_LENGTH;
      while (to < line.length && line.charCodeAt(to) === text.charCodeAt(place + to - from)) to += 1;
      if (to - from < MIN_PIECE_LENGTH) {
        at += 1;
        continue;
      }
      keep(from);
      pieces.push(place, to - from);
      rest = to;
      at = to;
    }
    keep(line.length);
    return pieces;
  }
}

function anchorsOf(text: string): Map<string, number> {
  const anchors = new Map<string, number>();
  const step = Math.max(ANCHOR_LENGTH, Math.ceil(text.length / MAX_ANCHORS));
  for (let at = 0; at + ANCHOR_LENGTH <= text.length; at += step) {
    const piece = text.slice(at, at + ANCHOR_LENGTH);
    if (!anchors.has(piece)) anchors.set(piece, at);
  }
  return anchors;
}

/** The longer of two texts of which one begins with the other; undefined where none does. */
function longer(a: string | undefined, b: string | undefined): string | undefined {
  if (a === undefined || b === undefined) return undefined;
  if (a.startsWith(b)) return a;
  return b.startsWith(a) ? b : undefined;
}

const NUMBER = ',"sequence_number":';
const DELTA = ',"delta":"';
const LOGPROBS = ',"logprobs":[';
const OBFUSCATION = ',"obfuscation":"';

/** Takes an event apart as `EventWriter.delta` puts it together; undefined where it is none of those. */
function readDelta(line: string): DeltaLine | undefined {
  if (!line.slice(0, line.indexOf('"', 9)).endsWith(".delta")) return undefined;
  const numberFrom = line.indexOf(NUMBER) + NUMBER.length;
  const numberTo = line.indexOf(DELTA, numberFrom);
  if (numberFrom < NUMBER.length || numberTo === -1 || numberTo - numberFrom > 15) return undefined;
  const sequence = Number(line.slice(numberFrom, numberTo));
  const from = numberTo + DELTA.length;
  const to = endOfString(line, from);
  if (to === -1) return undefined;
  let end = line.length - 1;
  let obfuscation: string | undefined;
  const obfuscationFrom = line.lastIndexOf(OBFUSCATION);
  if (obfuscationFrom > to) {
    obfuscation = line.slice(obfuscationFrom + OBFUSCATION.length, end - 1);
    end = obfuscationFrom;
  }
  const hasLogprobs = line.startsWith(LOGPROBS, to + 1);
  const logprobs = hasLogprobs ? line.slice(to + 1 + LOGPROBS.length, end - 1) : undefined;
  return { head: line.slice(0, numberFrom), sequence, text: line.slice(from, to), logprobs, obfuscation };
}

/** Where the JSON string ends that begins behind a quote at `from`; -1 where it does not. */
function endOfString(json: string, from: number): number {
  for (let at = json.indexOf('"', from); at !== -1; at = json.indexOf('"', at + 1)) {
    let backslashes = 0;
    while (json.charCodeAt(at - 1 - backslashes) === 92) backslashes += 1;
    if (backslashes % 2 === 0) return at;
  }
  return -1;
}
