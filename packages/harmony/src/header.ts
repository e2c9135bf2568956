import type { Channel, HarmonyMessage, Role } from "./message.ts";
import { ROLES } from "./message.ts";
import { type Segment, toText } from "./segments.ts";
import { CHANNEL, CONSTRAIN } from "./vocabulary.ts";

/** The header of a message: everything between `<|start|>` and `<|message|>`. */
export interface Header {
  role: Role;
  /** The author's name; a tool's is its full name. */
  name?: string;
  /** Absent if the header names none; an unknown channel counts as `analysis`, which is hidden. */
  channel?: Channel;
  /** The recipient as it is written, also of an unknown tool. */
  recipient?: string;
  /** With its marker, if it has one: `<|constrain|>json`, `json`. */
  content_type?: string;
  /** The header has a regular form and exactly this content, so that the model may get it again unchanged. */
  clean: boolean;
  /** Text that is no field: junk, or the beginning of the content if the model forgot `<|message|>`. */
  rest: string;
}

/** The regular forms: a recipient in the role's section or in the channel's, or none; a content type or none. */
const REGULAR =
  /^assistant(?: to=([\w.:-]{1,128}))?<\|channel\|>(analysis|commentary|final)(?: to=([\w.:-]{1,128}))?(?: ?(<\|constrain\|>(?:json|code))| (json|code))?$/;

/**
 * Reads a header as the model writes it, however malformed; never throws. Special ids in it are markers, text is not.
 * `isTool` says whether a word without `to=` is a recipient. The deviations and their meanings are from the bug reports
 * against vLLM, llama.cpp, Ollama, SGLang, dynamo and openai/harmony.
 */
export function parseHeader(segments: readonly Segment[], isTool: (word: string) => boolean = () => false): Header {
  const hasMarkerAsText = segments.some((segment) => typeof segment === "string" && segment.includes("<|"));
  const match = hasMarkerAsText ? null : REGULAR.exec(toText(segments));
  if (match === null || (match[1] !== undefined && match[3] !== undefined)) return parseLoosely(segments, isTool);
  const recipient = match[1] ?? match[3];
  const contentType = match[4] ?? match[5];
  return {
    role: "assistant",
    channel: match[2] as Channel,
    ...(recipient !== undefined && { recipient }),
    ...(contentType !== undefined && { content_type: contentType }),
    clean: true,
    rest: "",
  };
}

/** `parseHeader` for a header as one text, in which the literals of `<|channel|>` and `<|constrain|>` are markers. */
export function parseHeaderText(header: string): Header {
  const segments = header.split(/(<\|channel\|>|<\|constrain\|>)/).map((part) => MARKERS.get(part) ?? part);
  return parseHeader(segments);
}

const MARKERS = new Map([
  ["<|channel|>", CHANNEL],
  ["<|constrain|>", CONSTRAIN],
]);

/**
 * The header of a message from its fields alone, in the model's own form: the recipient after the channel. Special
 * tokens are literals.
 */
export function standardHeader(message: HarmonyMessage): string {
  const { role, name, channel, recipient, content_type: contentType } = message;
  const author = name === undefined ? role : role === "tool" ? name : `${role}:${name}`;
  return [
    author,
    channel === undefined ? "" : `<|channel|>${channel}`,
    recipient === undefined ? "" : ` to=${recipient}`,
    contentType === undefined ? "" : ` ${contentType}`,
  ].join("");
}

/** Takes words from the front of a section; all patterns are sticky. */
class Scanner {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** The first group of a match here, without moving. */
  peek(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.#text);
    return match === null ? undefined : (match[1] ?? match[0]);
  }

  /** The same, moving behind the match. */
  take(pattern: RegExp): string | undefined {
    const word = this.peek(pattern);
    if (word !== undefined) this.#at = pattern.lastIndex;
    return word;
  }

  rest(): string {
    return this.#text.slice(this.#at);
  }
}

/** A part of a header: what the marker before it says that it should be. The first has none; it is the role's. */
interface Section {
  marker: typeof CHANNEL | typeof CONSTRAIN | undefined;
  text: string;
}

function toSections(segments: readonly Segment[]): Section[] {
  let last: Section = { marker: undefined, text: "" };
  const sections = [last];
  for (const segment of segments) {
    if (typeof segment === "string") {
      last.text += segment;
    } else if (segment === CHANNEL || segment === CONSTRAIN) {
      last = { marker: segment, text: "" };
      sections.push(last);
    }
  }
  return sections;
}

function parseLoosely(segments: readonly Segment[], isTool: (word: string) => boolean): Header {
  const header: Header = { role: "assistant", clean: false, rest: "" };
  const sections = toSections(segments);
  for (const { marker, text } of sections) {
    const scan = new Scanner(text);
    if (marker === undefined) {
      takeRole(scan, header, isTool);
      if (!segments.includes(CHANNEL)) takeUnmarkedChannel(scan, header);
    } else if (marker === CHANNEL) {
      // Text before the channel's name does not belong to the message.
      header.rest = "";
      takeChannel(scan, header);
      takeBareRecipient(scan, header, isTool);
    }
    takeFields(scan, header, marker);
    header.rest += scan.rest();
  }
  return header;
}

/** The author. `assistant` may be doubled, and may be followed by text at once where the header ends without a marker. */
function takeRole(scan: Scanner, header: Header, isTool: (word: string) => boolean): void {
  if (scan.take(/\s*assistant/y) !== undefined) {
    scan.take(/(?:assistant)+(?=analysis|commentary|final|[^a-z]|$)/y);
    takeName(scan, header);
    return;
  }
  const word = scan.peek(/\s*([^\s:<]+)/y) ?? "";
  const role = ROLES.find((each) => each === word);
  if (role !== undefined) {
    header.role = role;
    scan.take(/\s*[^\s:<]+/y);
    takeName(scan, header);
  } else if (looksLikeTool(word, scan) || isTool(word)) {
    header.role = "tool";
    header.name = word;
    scan.take(/\s*[^\s:<]+/y);
  }
}

function takeName(scan: Scanner, header: Header): void {
  const name = scan.take(/:([\w.-]+)(?=\s|$)/y);
  if (name !== undefined) header.name = name;
}

/** An invented result has a tool as its author: a name with dots, or any word with a recipient. */
function looksLikeTool(word: string, scan: Scanner): boolean {
  if (/^(?:analysis|comment[a-z]*|final|to=.*)$/.test(word)) return false;
  return /^[\w-]+(?:\.[\w-]+)+$/.test(word) || scan.peek(/\s*[^\s:<]+\s+to=/y) !== undefined;
}

/**
 * A channel's name in a header without its marker. Such text may also be the answer itself, so `final` counts only
 * alone or before JSON; `analysis` counts always, because the text after it must stay hidden.
 */
function takeUnmarkedChannel(scan: Scanner, header: Header): void {
  if (scan.take(/\s*final(?=\s*(?:[{[]|$))/y) !== undefined) header.channel = "final";
  else if (scan.take(/\s*analysis/y) !== undefined) header.channel = "analysis";
  else if (scan.take(/\s*commentary(?=to=|\s|$)/y) !== undefined) header.channel = "commentary";
}

/**
 * A channel's name after its marker; the last one counts (llama.cpp #21286), and an empty one does not. Other text may
 * be glued to `final` (dynamo #236), and `commentary` be cut short or have dashes before it (vLLM #58384).
 */
function takeChannel(scan: Scanner, header: Header): void {
  if (scan.rest().trim() === "") return;
  if (scan.take(/\s*final/y) !== undefined) {
    header.channel = "final";
  } else if (scan.take(/[^A-Za-z<{]*comment[a-z]*?(?=to=|[\s<{]|$)/y) !== undefined) {
    header.channel = "commentary";
  } else {
    header.channel = "analysis";
    // A garbled name is skipped only before a recipient; else the content may begin with it.
    if (scan.take(/\s*analysis/y) === undefined) scan.take(/\s*[^\s<]+(?=\s+to=)/y);
  }
}

/** A tool's name after the channel, without `to=`. Only of a known tool, because it may also be a content type. */
function takeBareRecipient(scan: Scanner, header: Header, isTool: (word: string) => boolean): void {
  const word = scan.peek(/\s+([^\s<{]+)/y);
  if (word === undefined || word === "json" || word === "code" || !isTool(word)) return;
  scan.take(/\s+[^\s<{]+/y);
  header.recipient = word;
}

/** Recipient and content type, in any order; anything else is ignored, such as a content type that is prose. */
function takeFields(scan: Scanner, header: Header, marker: Section["marker"]): void {
  for (let first = true; ; first = false) {
    const recipient = scan.take(/\s*to=([^\s<{]*)/y);
    if (recipient !== undefined) {
      const replaceable = marker === CHANNEL && /^(?:assistant|user|all)?$/.test(header.recipient ?? "");
      if (header.recipient === undefined || replaceable) header.recipient = recipient;
      continue;
    }
    // Without a recipient, such a word after the role begins a text.
    const contentType =
      marker !== undefined || header.recipient !== undefined ? scan.take(/\s*(json|code)(?!\w)/y) : undefined;
    if (contentType !== undefined) {
      header.content_type ??= marker === CONSTRAIN && first ? `<|constrain|>${contentType}` : contentType;
      continue;
    }
    // `<|constrain|>` in the place of `<|channel|>`: of several the first counts, as in vLLM.
    const channel = marker === CONSTRAIN ? scan.take(/\s*(analysis|commentary|final)(?=\s|$)/y) : undefined;
    if (channel === undefined) return;
    header.channel ??= channel as Channel;
  }
}
