import { CustomInput, customInputOf } from "@responses-edge/turn/contract/custom-input";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { codePoint } from "../../../test/code-points.ts";

/** The input of a custom tool, in any pieces. */
function read(pieces: readonly string[]): string {
  const input = new CustomInput();
  const said = pieces.map((piece) => input.push(piece));
  for (const each of said) expect(each.isWellFormed()).toBe(true);
  return said.join("") + input.end();
}

function cut(text: string, places: readonly number[]): string[] {
  const at = [...new Set(places.map((place) => place % (text.length + 1)))].sort((a, b) => a - b);
  return [0, ...at].map((from, index) => text.slice(from, at[index] ?? text.length));
}

const anyText = fc.string({ unit: codePoint });
const places = fc.array(fc.nat(), { maxLength: 8 });

describe("the input of a custom tool", () => {
  it("is decoded from JSON, for any text and any cuts", () => {
    fc.assert(
      fc.property(anyText, places, fc.boolean(), (text, at, isAscii) => {
        const json = JSON.stringify({ input: text });
        const written = isAscii ? json.replaceAll(/[\u0080-\uffff]/g, escaped) : json;
        expect(read(cut(written, at))).toBe(text.toWellFormed());
        expect(customInputOf(written)).toBe(text.toWellFormed());
      }),
    );
  });

  it("is a bare text where it is no such JSON, wherever it is cut", () => {
    fc.assert(
      fc.property(anyText, places, (text, at) => {
        const bare = `*** ${text}`;
        expect(read(cut(bare, at))).toBe(bare.toWellFormed());
        expect(customInputOf(bare)).toBe(bare.toWellFormed());
      }),
    );
  });

  it("is given as soon as it is known, without half escapes and half characters", () => {
    const input = new CustomInput();
    const said = ['{ "in', 'put" : "a', "\\", "n\\ud8", "3d", "\\ude00b", '\\u00e9" ', "}"].map((piece) =>
      input.push(piece),
    );
    expect(said).toEqual(["", "a", "", "\n", "", "😀b", "é", ""]);
    expect(input.isWhole).toBe(true);
    expect(input.end()).toBe("");
  });

  it("is taken as it is meant where no JSON parser would take it", () => {
    expect(read(['{"input": "a\nb \\d \\q"}'])).toBe("a\nb \\d \\q");
    expect(read(["{}"])).toBe("{}");
    expect(read([""])).toBe("");
  });

  it("is known to be cut", () => {
    for (const text of ['{"inp', '{"input": "abc', '{"input": "a\\', '{"input": "a" b"}', '{"input": "a"']) {
      expect(customInputOf(text)).toBeUndefined();
    }
    expect(customInputOf('{"input": "a", "why": "b"}')).toBe("a");
  });

  it("is not held back for ever by text that looks like its opening", () => {
    const input = new CustomInput();
    let said = "";
    for (let index = 0; index < 1_000; index += 1) said += input.push(" ");
    expect(said.length).toBe(1_000);
  });
});

function escaped(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
