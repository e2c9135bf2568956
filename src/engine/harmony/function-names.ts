/**
 * Names of functions as Harmony can say them. The tools block declares TypeScript types, so a name that is no identifier
 * is rewritten, and what the model then calls is mapped back (Ollama does the same; vLLM #51977 is what happens else).
 */
export class FunctionNames {
  readonly #byName = new Map<string, string>();
  /** How often a name has been wanted that was taken: the next one is numbered from there. */
  readonly #taken = new Map<string, number>();
  /** The caller's name, by every name that the model may write. */
  readonly written = new Map<string, string>();

  /** `names` are the caller's; those of tools on offer first. */
  constructor(names: Iterable<string>) {
    const all = [...new Set(names)];
    for (const name of all) if (isIdentifier(name)) this.#add(name, name);
    for (const name of all) if (!isIdentifier(name)) this.#add(name, this.#free(identifierOf(name)));
    // The caller's own spelling is understood, too, where it means nothing else.
    for (const name of all) if (!this.written.has(name)) this.written.set(name, name);
  }

  /** The name that the model gets to see. Throws nothing: an unknown name is made an identifier. */
  shown(name: string): string {
    return this.#byName.get(name) ?? identifierOf(name);
  }

  #add(name: string, shown: string): void {
    this.#byName.set(name, shown);
    this.written.set(shown, name);
  }

  /** The first of `wanted`, `wanted_2`, `wanted_3`, … that is free. */
  #free(wanted: string): string {
    for (let count = (this.#taken.get(wanted) ?? 0) + 1; ; count += 1) {
      const candidate = count === 1 ? wanted : `${wanted}_${count}`;
      if (this.written.has(candidate)) continue;
      this.#taken.set(wanted, count);
      return candidate;
    }
  }
}

function isIdentifier(name: string): boolean {
  return /^[A-Za-z_]\w{0,63}$/.test(name);
}

/** A name made an identifier, for one that may be looked up no more. */
export function identifierOf(name: string): string {
  return name
    .slice(0, 64)
    .replaceAll(/\W/g, "_")
    .replace(/^(?=\d|$)/, "_");
}
