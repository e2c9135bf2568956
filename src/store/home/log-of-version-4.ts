import type { ErrorFields } from "@responses-edge/responses-api/errors";

/**
 * Reads event logs of ended runs in the form of versions 4 to 7: a JSON text, in which ids and texts are positions in
 * the turn's response and output. Consecutive deltas are stored together: a frame, the position of their text, and the
 * length of each. Any other event is stored in pieces. Nothing writes this form any more.
 */

/** The position of a text in the turn's text, or the text itself. */
type Place = number | string;

/** Consecutive texts, and the length of each. */
type Texts = [Place, lengths: number[]];

/** The common part of consecutive deltas: their JSON up to the number, and whether they have `logprobs`. */
type Frame = [head: string, hasLogprobs: boolean];

/** Deltas, by the indices of their frame and of their padding (-1: none), with their texts and their logprobs. */
type Deltas = [frame: number, padding: number, ...texts: Texts, ...logprobs: Texts | []];

/** Any other event: its JSON in pieces, each a text, or a position and a length. The first piece is a text. */
type Pieces = [string, ...(string | number)[]];

type Block = [from: number, to: number, ...(Deltas | Pieces)[]];

interface PlacedLog {
  frames: Frame[];
  /** Obfuscation is cut from these. */
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

/** True of a kept log that has this form. */
export function isPlacedLog(kept: string): boolean {
  return kept.startsWith('{"frames":');
}

/**
 * The events after the event `after` that are in one block; undefined at the log's end. `text`: the turn's response and
 * output, concatenated.
 */
export function readPlacedLog(kept: string, text: string, after: number): EventBlock | undefined {
  const log = JSON.parse(kept) as PlacedLog;
  const block = log.blocks.find(([, to]) => to > after);
  if (!block) return undefined;
  const [first, to] = block;
  const from = Math.max(first, after + 1);
  return { from, to, events: eventsOf(log, block, text).slice(from - first) };
}

/** Why the run of a log has failed; undefined if it has not. */
export function failureInPlacedLog(kept: string): ErrorFields | undefined {
  return (JSON.parse(kept) as PlacedLog).failure;
}

function eventsOf({ frames, paddings }: PlacedLog, [first, , ...entries]: Block, text: string): string[] {
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

/** Texts of these lengths; `gap` separates two of them that are not empty. */
function textsAt(text: string, place: Place, lengths: readonly number[], gap: number): string[] {
  const source = typeof place === "string" ? place : text;
  let at = typeof place === "string" ? 0 : place;
  return lengths.map((length) => {
    const found = source.slice(at, at + length);
    if (length > 0) at += length + gap;
    return found;
  });
}

/** The obfuscation of a delta, from its JSON. */
function obfuscationOf(json: string, padding: string): string {
  const length = json.includes("\\") ? (JSON.parse(`"${json}"`) as string).length : json.length;
  return padding.slice(0, 16 - (length % 16));
}
