/** Values of JSON within a longer text, by their positions: a call's arguments stay as the model wrote them. */

/** The position after the JSON value that begins at `from`; -1 for one that does not end. Not validated. */
export function valueEnd(text: string, from: number): number {
  const first = text[from];
  if (first === '"') return stringEnd(text, from);
  if (first !== "{" && first !== "[") {
    const scalar = /[^\s,\]}]+/y;
    scalar.lastIndex = from;
    return scalar.test(text) ? scalar.lastIndex : -1;
  }
  let depth = 0;
  for (let at = from; at < text.length; at += 1) {
    const character = text[at];
    if (character === '"') {
      at = stringEnd(text, at) - 1;
      if (at < 0) return -1;
    } else if (character === "{" || character === "[") depth += 1;
    else if (character === "}" || character === "]") {
      depth -= 1;
      if (depth === 0) return at + 1;
    }
  }
  return -1;
}

function stringEnd(text: string, from: number): number {
  for (let at = from + 1; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === '"') return at + 1;
  }
  return -1;
}

/** The position of the first character from `from` on that is no white space. */
export function pastSpace(text: string, from: number): number {
  let at = from;
  while (at < text.length && /\s/.test(text[at] as string)) at += 1;
  return at;
}

/** The values of an object's members, as they are written; undefined for a text that is no JSON object. */
export function membersOf(object: string): Map<string, string> | undefined {
  if (!isJsonOf(object, "{")) return undefined;
  const members = new Map<string, string>();
  for (let at = pastSpace(object, 1); object[at] === '"'; ) {
    const keyEnd = valueEnd(object, at);
    const key = JSON.parse(object.slice(at, keyEnd)) as string;
    const from = pastSpace(object, pastSpace(object, keyEnd) + 1);
    const to = valueEnd(object, from);
    members.set(key, object.slice(from, to));
    const next = pastSpace(object, to);
    at = object[next] === "," ? pastSpace(object, next + 1) : next;
  }
  return members;
}

/** The elements of a list, as they are written; undefined for a text that is no JSON list. */
export function elementsOf(list: string): string[] | undefined {
  if (!isJsonOf(list, "[")) return undefined;
  const elements: string[] = [];
  for (let at = pastSpace(list, 1); at < list.length && list[at] !== "]"; ) {
    const to = valueEnd(list, at);
    elements.push(list.slice(at, to));
    const next = pastSpace(list, to);
    at = list[next] === "," ? pastSpace(list, next + 1) : next;
  }
  return elements;
}

function isJsonOf(text: string, opening: string): boolean {
  if (!text.startsWith(opening)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
