/** A copy of a JSON value that is no longer than it may be, with another text in the place of each. */

export interface CopyBounds {
  /** UTF-16 units of all texts and names together, about. */
  maxLength: number;
  /** Gives what stands for a text. */
  change: (text: string) => string;
}

export interface BoundedCopy {
  copy: unknown;
  /** True where the value is longer than its copy. */
  isCut: boolean;
}

/** So much of a text is changed beyond what is kept of it: what a change finds is found also where it goes beyond the end. */
const MARGIN = 1_024;

/** A number, a truth value and null count as so much, and so does an entry of a list or an object. */
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
