/** Formats numbers, sizes and times for people. */

const number = new Intl.NumberFormat("en");

export function count(value: number | null | undefined) {
  return value == null ? "–" : number.format(value);
}

export function duration(milliseconds: number | null | undefined) {
  if (milliseconds == null) return "–";
  if (milliseconds < 1_000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1_000;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  const whole = Math.round(seconds);
  return whole < 3_600
    ? `${Math.floor(whole / 60)} min ${whole % 60} s`
    : `${Math.floor(whole / 3_600)} h ${Math.floor((whole % 3_600) / 60)} min`;
}

const UNITS = [
  ["MB", 1e6],
  ["GB", 1e9],
  ["TB", 1e12],
] as const;

export function size(bytes: number | null) {
  if (bytes === null) return "–";
  if (bytes < 1_000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${(bytes / 1_000).toFixed(bytes < 10_000 ? 1 : 0)} kB`;
  const [unit, divisor] = UNITS.findLast(([, least]) => bytes >= least) ?? UNITS[0];
  return `${(bytes / divisor).toFixed(1)} ${unit}`;
}

/**
 * A moment of the API's, in the browser's language and time zone. A line may end only between its date and its time.
 * @param seconds since 1970
 * @param none the text where there is none
 */
export function moment(seconds: number | null | undefined, none = "–") {
  if (seconds == null) return none;
  const date = new Date(seconds * 1_000);
  const parts = [
    date.toLocaleDateString(undefined, { dateStyle: "medium" }),
    date.toLocaleTimeString(undefined, { timeStyle: "medium" }),
  ];
  return parts.map((part) => part.replaceAll(/\s/g, "\u00a0")).join(", ");
}

/** US dollars, to the millionth where there are few. */
export function money(dollars: number) {
  return `$${dollars.toFixed(dollars === 0 || dollars >= 1 ? 2 : 6)}`;
}

/** The name of a field in words: `file_search_calls` is `File search calls`. */
export function inWords(field: string) {
  const words = field.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** The beginning of a text. */
export function beginning(text: string, length: number) {
  return text.length > length ? `${text.slice(0, length)}…` : text;
}

/** Formats a text as indented JSON. A text that is not JSON, or is too long, is returned unchanged. */
export function readableJson(text: string) {
  if (text.length > 100_000) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** The URL if a browser would open it as a web page. */
export function isWebPage(href: string) {
  const protocol = URL.parse(href)?.protocol;
  return protocol === "https:" || protocol === "http:";
}
