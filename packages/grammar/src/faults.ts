/** Why a grammar is not one: said with the place where that shows. */
export class GrammarFault extends Error {
  override readonly name = "GrammarFault";
  /** Where in the definition it is, in UTF-16 code units. */
  readonly at: number;

  constructor(message: string, at: number) {
    super(message);
    this.at = at;
  }
}

/**
 * A reader notes this of a grammar that is one, and yet cannot be bound to a model: the first thing that has no
 * counterpart in what model servers take.
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
