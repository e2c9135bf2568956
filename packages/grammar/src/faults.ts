/** A text that is not a valid grammar. The message says why, and `at` says where. */
export class GrammarFault extends Error {
  override readonly name = "GrammarFault";
  /** The position of the fault in the definition, in UTF-16 code units. */
  readonly at: number;

  constructor(message: string, at: number) {
    super(message);
    this.at = at;
  }
}

/**
 * Why there is no remainder: the prefix begins no valid text; the remainder, or the work to find it, is out of bounds;
 * or the bound is not one that this package reads.
 */
export class RemainderFault extends Error {
  override readonly name = "RemainderFault";
  readonly reason: "no_prefix" | "too_large" | "unreadable";

  constructor(reason: RemainderFault["reason"]) {
    super(REASONS[reason]);
    this.reason = reason;
  }
}

const REASONS = {
  no_prefix: "no valid text begins with this prefix",
  too_large: "the remainder after this prefix is too large",
  unreadable: "this bound has no grammar",
};

/**
 * The reason why a valid grammar cannot constrain a model: the first construct that no model server supports.
 * The reader of the grammar notes it.
 */
export class Beyond {
  what: string | undefined;

  note(what: string): void {
    this.what ??= what;
  }
}

/** Characters of a name that a fault quotes. */
const MAX_QUOTED = 64;

/** A name of the grammar's as a fault quotes it. */
export function shortened(name: string): string {
  return name.length > MAX_QUOTED ? `${name.slice(0, MAX_QUOTED)}…` : name;
}
