/**
 * Characters that some reader of lines treats as a line end, and other control characters: JSON does not escape those
 * from U+007F on. (Unicode's line boundaries, UAX #14 and Python's `splitlines`: LF, VT, FF, CR, FS, GS, RS, NEL, LS,
 * PS.)
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
const SEPARATORS = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g;

/**
 * The text with such characters written as `\uXXXX`: one line for every reader. JSON without white space stays the same
 * JSON.
 */
export function oneLine(text: string): string {
  return text.replace(SEPARATORS, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** A line of the log, as JSON. */
export function logLine(fields: object): string {
  return oneLine(JSON.stringify(fields));
}
