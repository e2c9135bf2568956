import { describe, expect, it } from "vitest";
import { foundAfter, piecesIn } from "./repetition-corpus.ts";

/** Pieces of the installed packages: prose, code, data and tables, which `package-lock.json` fixes. */
const PIECES = 10_000;

describe("normal texts", () => {
  it(`are not taken for repetitions: ${PIECES} pieces of the installed packages`, () => {
    const found: string[] = [];
    let read = 0;
    for (const { source, text } of piecesIn("node_modules")) {
      if (read === PIECES) break;
      read += 1;
      for (const kind of ["thought", "answer"] as const) {
        if (foundAfter(kind, text) !== undefined) found.push(`${kind} ${source}`);
      }
    }
    expect({ read, found }).toEqual({ read: PIECES, found: [] });
  }, 120_000);
});
