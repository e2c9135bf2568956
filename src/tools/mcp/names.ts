/** What is left of a name that gets a number: 64 characters hold it with one of three digits. */
const MAX_STEM_LENGTH = 60;

/** The name under which a model sees a tool of an MCP server: `label__tool`, in the letters that functions may have. */
export function functionName(label: string, tool: string): string {
  return `${label}__${tool}`.replaceAll(/[^A-Za-z0-9_-]/g, "_").slice(0, 64);
}

/** Finds names that are free. */
export class FreeNames {
  readonly #isFree: (name: string) => boolean;
  /** The next number to try for names that are not free, by what stands before it. */
  readonly #numbered = new Map<string, number>();

  constructor(isFree: (name: string) => boolean) {
    this.#isFree = isFree;
  }

  /** The name itself, or the first of `name_2`, `name_3`, … that is free. */
  find(wanted: string): string {
    if (this.#isFree(wanted)) return wanted;
    const stem = wanted.slice(0, MAX_STEM_LENGTH);
    let count = this.#numbered.get(stem) ?? 2;
    while (!this.#isFree(`${stem}_${count}`)) count += 1;
    this.#numbered.set(stem, count + 1);
    return `${stem}_${count}`;
  }
}
