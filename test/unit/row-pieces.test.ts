import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { Buffer } from "node:buffer";
import { zstdCompressSync } from "node:zlib";
import { newTurnAddress } from "@responses-edge/responses-api/ids";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Tables } from "../../src/store/home/tables.ts";
import { TEXT_BYTES, TurnStore } from "../../src/store/home/turn-store.ts";
import { fromCell, fromCells, type StoredCell, toCells, toPieces } from "../../src/store/objects/row-pieces.ts";
import { codePoint } from "../code-points.ts";

// Short texts that are repeated to a length of a few pieces, so that cuts are anywhere in them.
const long = fc
  .tuple(fc.string({ unit: codePoint, minLength: 1, maxLength: 9 }), fc.integer({ min: 0, max: 650_000 }))
  .map(([unit, length]) => unit.repeat(Math.ceil(length / unit.length)));

/** Random letters, which compress worst. */
function letters(alphabet: string, length: number): string {
  const all = [...alphabet];
  return Array.from({ length }, () => all[Math.floor(Math.random() * all.length)]).join("");
}

/** The values that a row returns. */
async function storedAs(cells: readonly (string | Uint8Array)[]): Promise<StoredCell[]> {
  return runInDurableObject(env.HOME.getByName(`tenant:${newTurnAddress().home}`), (_, { storage: { sql } }) => {
    sql.exec("CREATE TABLE kept (part INTEGER NOT NULL PRIMARY KEY, body TEXT NOT NULL)");
    for (const [part, cell] of cells.entries()) sql.exec("INSERT INTO kept VALUES (?, ?)", part, cell);
    const rows = sql.exec<{ body: StoredCell }>("SELECT body FROM kept ORDER BY part").toArray();
    return rows.map(({ body }) => body);
  });
}

describe("cells", () => {
  it("give the same text again, for any text", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string({ unit: codePoint }), long), (text) => {
        const cells = toCells(text).map((cell) => (typeof cell === "string" ? cell : new Uint8Array(cell).buffer));
        expect(fromCells(cells) === text).toBe(true);
      }),
    );
  });

  it("take no more bytes than the text, and a row of four less than 2 MB", () => {
    fc.assert(
      fc.property(long, (text) => {
        for (const [index, cell] of toCells(text).entries()) {
          const bytes = typeof cell === "string" ? Buffer.byteLength(cell) : cell.byteLength;
          expect(bytes).toBeLessThanOrEqual(Buffer.byteLength(toPieces(text)[index] ?? ""));
          expect(4 * bytes).toBeLessThan(2_000_000);
        }
      }),
    );
  });

  // Texts of 4,096 units and more are compressed. `test/e2e/storable.test.ts` checks their size on the released
  // workerd.
  it.each([
    ["English", "the quick brown fox jumps over the lazy dog ".repeat(200)],
    ["base64", letters("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", 5_000)],
    [
      "Chinese",
      letters(
        "的一是不了人我在有他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可她里后",
        5_000,
      ),
    ],
    ["emoji", letters("😀😃😄😁😆😅🤣😂🙂🙃😉😊😇🥰😍🤩", 5_000)],
  ])("of %s are blobs, and are read from a row", async (_, text) => {
    const stored = await storedAs(toCells(text));
    expect(fromCells(stored) === text).toBe(true);
    expect(stored.every((cell) => cell instanceof ArrayBuffer)).toBe(true);
  });

  it("are text if it is short", () => {
    expect(toCells("a".repeat(4_000))).toEqual(["a".repeat(4_000)]);
    expect(toCells("")).toEqual([""]);
  });

  it("are read in the form of the first version that wrote them", () => {
    // `"responses ".repeat(1_000)`, compressed at level 1.
    const blob = Buffer.from("KLUv/WAQJpUAAFByZXNwb25zZXMgAQADp3xBAg==", "base64");
    expect(fromCell(new Uint8Array(blob).buffer)).toBe("responses ".repeat(1_000));
  });

  it("are not read if one is damaged, or would exceed the length of a piece", () => {
    const bomb = zstdCompressSync("a".repeat(1_800_001));
    expect(() => fromCell(new Uint8Array(bomb).buffer)).toThrow(SyntaxError);
    expect(() => fromCell(new Uint8Array(zstdCompressSync("a".repeat(10_000)).subarray(0, 10)).buffer)).toThrow(
      SyntaxError,
    );
    expect(() => fromCell(new Uint8Array([1, 2, 3, 4, 5, 6, 7, 8]).buffer)).toThrow(SyntaxError);
  });
});

describe("toPieces", () => {
  // Short texts that are repeated to a length of a few pieces, so that cuts are anywhere in them.
  const long = fc
    .tuple(fc.string({ unit: codePoint, minLength: 1, maxLength: 9 }), fc.integer({ min: 0, max: 650_000 }))
    .map(([unit, length]) => unit.repeat(Math.ceil(length / unit.length)));

  it("gives pieces that join to the same text, for any text", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), long), (text) => {
        const pieces = toPieces(text);
        expect(pieces.join("") === text).toBe(true);
        expect(pieces.length).toBeGreaterThan(0);
        for (const piece of pieces) expect(piece.length).toBeLessThanOrEqual(150_000);
      }),
    );
  });

  it("never cuts a surrogate pair", () => {
    const arbitrary = fc.tuple(fc.integer({ min: 0, max: 3 }), fc.integer({ min: 0, max: 300_000 }));
    fc.assert(
      fc.property(
        fc.oneof(
          long,
          arbitrary.map(([odd, emoji]) => "x".repeat(odd) + "🦜".repeat(emoji)),
        ),
        (text) => {
          for (const piece of toPieces(text)) expect(piece.isWellFormed()).toBe(true);
        },
      ),
    );
  });

  it("cuts text that is not well-formed, too", () => {
    const lone = "\ud83e".repeat(450_000);
    expect(toPieces(lone).join("") === lone).toBe(true);
  });
});

it("gives the number of bytes of a turn's rows", async () => {
  await runInDurableObject(env.HOME.getByName(`tenant:${newTurnAddress().home}`), (_, { storage }) => {
    const tables = new Tables(storage.sql);
    const turns = new TurnStore(tables, () => 0);
    const sum = `SELECT SUM(${TEXT_BYTES}) AS bytes FROM turns WHERE turn = ?`;
    const bytesOf = (turn: string) => tables.rows<{ bytes: number | null }>("turns", sum, turn)[0]?.bytes;
    const turn = { turn: "one", parent: null, createdAt: 1, base: null, position: null, messages: null };
    turns.insert({ ...turn, input: "é".repeat(1_000), output: "a".repeat(400_000), response: "{}", log: null });
    const blobs = toCells("a".repeat(400_000)).reduce((sum, cell) => sum + cell.length, 0);
    expect([bytesOf("one"), bytesOf("two")]).toEqual([2_000 + blobs + 2, null]);
  });
});
