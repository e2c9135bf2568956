import { UnreadableFile } from "./limits.ts";

/** The text of an RTF file (Rich Text Format 1.9.1): its paragraphs, without the tables of fonts, colours and styles. */

/** Groups whose text is no text of the document. */
const LEFT_OUT = new Set([
  ...["fonttbl", "colortbl", "stylesheet", "info", "pict", "themedata", "colorschememapping", "datastore", "generator"],
  ...[
    "listtable",
    "listoverridetable",
    "rsidtbl",
    "xmlnstbl",
    "latentstyles",
    "object",
    "fldinst",
    "filetbl",
    "revtbl",
  ],
  ...["pgptbl", "wgrffmtfilter", "mmathPr", "userprops"],
]);

const CHARACTERS: Readonly<Record<string, string>> = {
  ...{ par: "\n", line: "\n", sect: "\n\n", page: "\n\n", row: "\n", tab: "\t", cell: "| ", lquote: "‘", rquote: "’" },
  ...{ ldblquote: "“", rdblquote: "”", bullet: "•", endash: "–", emdash: "—", emspace: " ", enspace: " " },
};

const TOKEN = /\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\(.)|([{}])|[\r\n]+|[^\\{}\r\n]+/gsy;

/** Groups nested deeper are damage. */
const MAX_DEPTH = 1_000;

interface Group {
  isLeftOut: boolean;
  /** A note, which stands in brackets. */
  isNote: boolean;
  /** Characters after a `\\u` that repeat it for older programs. */
  fallback: number;
}

/** Throws an UnreadableFile for text that is no RTF, or is cut off in the middle of a group. */
export function rtfText(source: string): string {
  let decoder = new TextDecoder("windows-1252");
  const pieces: string[] = [];
  let bytes: number[] = [];
  const groups: Group[] = [{ isLeftOut: false, isNote: false, fallback: 1 }];
  let skip = 0;
  const flush = () => {
    if (bytes.length > 0) pieces.push(decoder.decode(new Uint8Array(bytes)));
    bytes = [];
  };
  const add = (text: string) => {
    flush();
    if (!groups.at(-1)?.isLeftOut) pieces.push(text);
  };
  TOKEN.lastIndex = 0;
  for (let match = TOKEN.exec(source); match; match = TOKEN.exec(source)) {
    const [whole, word, number, hex, sign, bracket] = match;
    const group = groups.at(-1);
    if (!group) break;
    if (bracket === "{") {
      if (groups.length > MAX_DEPTH) throw damaged();
      flush();
      groups.push({ ...group });
      skip = 0;
    } else if (bracket === "}") {
      flush();
      if (groups.pop()?.isNote && groups.at(-1)?.isNote === false && !group.isLeftOut) pieces.push("]");
      skip = 0;
    } else if (word !== undefined) {
      if (word === "ansicpg") decoder = decoderOf(Number(number));
      else if (word === "uc") group.fallback = Math.min(8, Math.max(0, Number(number ?? 1)));
      else if (word === "u" && number !== undefined) {
        add(String.fromCharCode(Number(number) & 0xffff));
        skip = group.fallback;
      } else if (word === "footnote") {
        if (!group.isNote) add(" [");
        group.isNote = true;
      } else if (LEFT_OUT.has(word)) group.isLeftOut = true;
      else if (Object.hasOwn(CHARACTERS, word)) add(CHARACTERS[word] ?? "");
    } else if (hex !== undefined) {
      if (skip > 0) skip -= 1;
      else if (!group.isLeftOut) bytes.push(Number.parseInt(hex, 16));
    } else if (sign !== undefined) {
      // A destination that older programs pass over.
      if (sign === "*") group.isLeftOut = true;
      else if (sign === "~") add(" ");
      else if (sign === "_") add("-");
      else if (sign === "\n" || sign === "\r") add("\n");
      else if ("{}\\".includes(sign)) add(sign);
    } else if (!/^[\r\n]/.test(whole)) {
      const text = whole.slice(skip);
      skip = Math.max(0, skip - whole.length);
      if (text !== "") add(text);
    }
  }
  flush();
  if (TOKEN.lastIndex !== 0 || groups.length > 1) throw damaged();
  return pieces.join("").toWellFormed().replaceAll("\0", "").trim();
}

function decoderOf(codePage: number): TextDecoder {
  const names: Readonly<Record<number, string>> = {
    932: "shift_jis",
    936: "gbk",
    949: "euc-kr",
    950: "big5",
    65001: "utf-8",
  };
  try {
    return new TextDecoder(names[codePage] ?? `windows-${codePage}`);
  } catch {
    return new TextDecoder("windows-1252");
  }
}

function damaged(): UnreadableFile {
  return new UnreadableFile("invalid_file", "The file is damaged, or cut off: it is no whole RTF.");
}
