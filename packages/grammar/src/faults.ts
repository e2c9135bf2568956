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
