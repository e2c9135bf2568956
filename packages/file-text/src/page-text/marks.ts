/**
 * The marks that gpt-oss was trained to read and to cite with: `【id†text】` is a link, `【cursor†L1-L2】` a citation.
 * Formats and replacements as in openai/gpt-oss, `gpt_oss/tools/simple_browser/page_contents.py`.
 */

/** Characters that would look like marks, and invisible ones. */
const REPLACED = /[【】◼\u200b\u00ad\ufeff]/g;
const REPLACEMENTS: Record<string, string> = { "【": "〖", "】": "〗", "◼": "◾" };

// biome-ignore lint/suspicious/noControlCharactersInRegex: They are what is to be found.
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g;

/** Text of others without characters that would look like marks of the display, and without control characters. */
export function withoutMarks(text: string): string {
  return text
    .replace(REPLACED, (character) => REPLACEMENTS[character] ?? "")
    .replace(CONTROLS, "")
    .toWellFormed();
}

/** A text in one line, as a link or a title shows it. */
export function oneLine(text: string): string {
  return text.replace(/\s+/g, " ").trim();
}

/** `【3†text】`, or `【3†text†domain】` when the link leads to another domain than `from`. */
export function linkMark(id: number, text: string, domain: string, from: string): string {
  const shown = text.replaceAll("†", "‡");
  return domain === from ? `【${id}†${shown}】` : `【${id}†${shown}†${domain}】`;
}

/** Host and port of a URL. `""` for an invalid URL. */
export function domainOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : "";
}

/** At most `length` characters, with dots for the rest. */
export function shortened(text: string, length = 1024): string {
  return text.length > length ? `${text.slice(0, length - 3).toWellFormed()}...` : text;
}
