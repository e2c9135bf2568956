/** A bounded copy of a JSON value, with a replacement for each text. */

export interface CopyBounds {
  /** The approximate maximum of UTF-16 units of all texts and names together. */
  maxLength: number;
  /** Gives the replacement of a text. */
  change: (text: string) => string;
}

export interface BoundedCopy {
  copy: unknown;
  /** True if the value is longer than its copy. */
  isCut: boolean;
}

/** The length of a text that is replaced beyond the kept part, so that a pattern across the end is found, too. */
const MARGIN = 1_024;

/** The length that a number, a boolean, null, and an entry of a list or an object count as. */
const LEAST_LENGTH = 8;

/** Copies a JSON value. Members that are undefined are left out. */
export function boundedCopy(value: unknown, { maxLength, change }: CopyBounds): BoundedCopy {
  let left = maxLength;
  let isCut = false;
  const copied = (each: unknown): unknown => {
    left -= LEAST_LENGTH;
    if (typeof each === "string") {
      const most = Math.max(0, left);
      const changed = change(each.slice(0, most + MARGIN));
      isCut ||= changed.length > most || each.length > most + MARGIN;
      left -= Math.min(changed.length, most);
      return changed.length > most ? `${changed.slice(0, most)}…` : changed;
    }
    if (typeof each !== "object" || each === null) return each;
    return Array.isArray(each) ? copiedList(each) : copiedObject(each);
  };
  const copiedList = (list: readonly unknown[]): unknown[] => {
    const copy: unknown[] = [];
    for (const entry of list) {
      if (isSpent()) break;
      copy.push(copied(entry));
    }
    return copy;
  };
  const copiedObject = (object: object): object => {
    const copy: [string, unknown][] = [];
    for (const [name, member] of Object.entries(object)) {
      if (member === undefined) continue;
      if (isSpent()) break;
      left -= name.length;
      copy.push([name, copied(member)]);
    }
    // Also a member that is called `__proto__`.
    return Object.fromEntries(copy);
  };
  const isSpent = () => {
    const isSo = left <= 0;
    isCut ||= isSo;
    return isSo;
  };
  return { copy: copied(value), isCut };
}
