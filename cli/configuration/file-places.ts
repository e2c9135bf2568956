/** The places of variables in a file. */
export interface FilePlaces {
  path: string;
  /** The line of each variable that the file has, from 1, by the variable's name. */
  lines: ReadonlyMap<string, number>;
}

/** Adds the path and line in the file to mistakes of variables (`NAME: …`). */
export function inFile({ path, lines }: FilePlaces, mistakes: readonly string[]): string[] {
  return mistakes.map((mistake) => {
    const [, name = "", rest = ""] = /^([A-Z][A-Z0-9_]*): ([\s\S]*)$/.exec(mistake) ?? [];
    const line = lines.get(name);
    return line === undefined ? mistake : `${path}:${line}: ${name.toLowerCase()}: ${rest}`;
  });
}
