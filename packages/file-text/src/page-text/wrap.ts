/**
 * Lines of at most 80 columns, broken as Python's `textwrap` does it with `replace_whitespace` and `drop_whitespace`
 * off, which is what gpt-oss's browser numbers its lines by. Lines put together give the text again. Columns are UTF-16
 * units here; tabs stay.
 */

export const WIDTH = 80;

const SPACES = /[\t\n\v\f\r ]+/y;
const WORD = /[^\t\n\v\f\r ]+/y;

/**
 * The beginning of a word with hyphens: dashes between words, or all up to a hyphen with letters on both sides (as in
 * `well-known`, not in `-x` or `1-2`), up to dashes, or up to its end. This is `textwrap`'s own expression.
 */
const HYPHENATED =
  /(?<=[\p{L}\p{N}_!"'&.,?])-{2,}(?=[\p{L}\p{N}_])|[^\t\n\v\f\r ]+?(?:-(?<=[\p{L}_]{2}-|[\p{L}_]-[\p{L}_]-)(?=[\p{L}_]-?[\p{L}_])|(?=[\t\n\v\f\r ]|$)|(?<=[\p{L}\p{N}_!"'&.,?])(?=-{2,}[\p{L}\p{N}_]))/uy;

/** A page's text in the lines that are numbered. Takes linear time. */
export function wrapLines(text: string): string[] {
  return text.split("\n").flatMap((line) => (line.length <= WIDTH ? line : wrapLine(line)));
}

function wrapLine(text: string): string[] {
  const lines: string[] = [];
  let line = "";
  for (let chunk of chunksOf(text)) {
    if (line.length + chunk.length > WIDTH && chunk.length <= WIDTH) {
      lines.push(line);
      line = "";
    }
    while (line.length + chunk.length > WIDTH) {
      const end = breakOf(chunk, WIDTH - line.length);
      if (end > 0 || line !== "") lines.push(line + chunk.slice(0, end));
      line = "";
      chunk = chunk.slice(end);
    }
    line += chunk;
  }
  if (line !== "") lines.push(line);
  return lines;
}

/** Words and the spaces between them; a word falls into several chunks where it may be broken. */
function* chunksOf(text: string): Generator<string> {
  for (let at = 0; at < text.length; ) {
    const run = match(isSpace(text.charCodeAt(at)) ? SPACES : WORD, text, at);
    const end = at + run.length;
    if (!run.includes("-")) yield run;
    else {
      for (let part = at; part < end; ) {
        const chunk = match(HYPHENATED, text, part) || text.slice(part, end);
        yield chunk;
        part += chunk.length;
      }
    }
    at = end;
  }
}

function match(pattern: RegExp, text: string, at: number): string {
  pattern.lastIndex = at;
  return pattern.exec(text)?.[0] ?? "";
}

function isSpace(code: number): boolean {
  return code === 0x20 || (code >= 0x09 && code <= 0x0d);
}

/** The part of a too long chunk that goes on this line: up to a hyphen, else as much as fits. */
function breakOf(chunk: string, left: number): number {
  const hyphen = chunk.lastIndexOf("-", left - 1);
  if (hyphen > 0 && /[^-]/.test(chunk.slice(0, hyphen))) return hyphen + 1;
  // Not within a character beyond U+FFFF.
  return left > 0 && isLowSurrogate(chunk.charCodeAt(left)) ? left - 1 : left;
}

function isLowSurrogate(code: number): boolean {
  return code >= 0xdc00 && code <= 0xdfff;
}
