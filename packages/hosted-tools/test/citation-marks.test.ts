import { asLink, CitationMarks, type Cited } from "@responses-edge/hosted-tools/browser/citation-marks";
import type { Citation } from "@responses-edge/turn/contract/tool-session";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { charactersTouched } from "../../../test/work.ts";

const PAGES = [
  { url: "https://a.dev/x", title: "A" },
  { url: "https://b.dev:8080/", title: "B" },
];

const citing = (page: (typeof PAGES)[number] | undefined) => page && asLink(page);

function filtered(...pieces: string[]): { text: string; annotations: Citation[]; pieces: string[] } {
  const filter = new CitationMarks((cursor) => citing(PAGES[Number(cursor)]));
  const given = [...pieces.map((piece) => filter.push(piece)), filter.end()];
  return {
    text: given.map(({ text }) => text).join(""),
    annotations: given.flatMap(({ annotations }) => [...annotations]),
    pieces: given.map(({ text }) => text),
  };
}

const A = " ([a.dev](https://a.dev/x)) ";
const B = " ([b.dev:8080](https://b.dev:8080/)) ";

/** The whole text at once, by gpt-oss's own expression. */
function reference(text: string): string {
  const pattern = /【([0-9]+)†([^†】]+)(?:†[^†】]+)?】/g;
  let result = "";
  let at = 0;
  for (let mark = pattern.exec(text); mark; mark = pattern.exec(text)) {
    const [whole, cursor] = mark;
    if (whole.length > 200) {
      pattern.lastIndex = mark.index + 1;
      continue;
    }
    result += text.slice(at, mark.index) + ([A, B][Number(cursor)] ?? whole);
    at = mark.index + whole.length;
  }
  return result + text.slice(at);
}

describe("citations", () => {
  it.each<[what: string, text: string, expected: string]>([
    ["one becomes a link to the page", "So it is【0†L10-L12】.", `So it is${A}.`],
    ["a third part says nothing more", "x【1†L3†b.dev】", `x${B}`],
    ["several follow one another", "【0†L1】【1†L2】", A + B],
    ["one of a page that does not exist stays", "x【7†L1】y", "x【7†L1】y"],
    [
      "brackets that are none stay",
      "【】【a†b】【1】【1†】【†x】【1†a†】【1†a†b†c】",
      "【】【a†b】【1】【1†】【†x】【1†a†】【1†a†b†c】",
    ],
    ["one begins after a bracket that leads nowhere", "【【0†L1】", `【${A}`],
    ["an unfinished one stays", "x【0†L1", "x【0†L1"],
    ["a mark without end is none", `【0†${"x".repeat(300)}】`, `【0†${"x".repeat(300)}】`],
    ["none", "plain", "plain"],
  ])("%s", (_what, text, expected) => {
    expect(filtered(text).text).toBe(expected);
  });

  it("are annotated over their replacement, in code points", () => {
    const { text, annotations } = filtered("😀é", "😀【0†L1】 then 😀【1†L2】");
    const points = [...text];
    expect(annotations).toEqual([
      { type: "url_citation", start_index: 3, end_index: 3 + A.length, title: "A", url: "https://a.dev/x" },
      {
        type: "url_citation",
        start_index: 10 + A.length,
        end_index: 10 + A.length + B.length,
        title: "B",
        url: "https://b.dev:8080/",
      },
    ]);
    const places = annotations.map((one) => (one.type === "url_citation" ? [one.start_index, one.end_index] : []));
    expect(places.map(([start, end]) => points.slice(start, end).join(""))).toEqual([A, B]);
  });

  it("hold back no more than might become one", () => {
    expect(filtered("a", "b【", "0", "†L", "1", "】c", "d").pieces).toEqual(["a", "b", "", "", "", `${A}c`, "d", ""]);
    expect(filtered("x【1", "a").pieces).toEqual(["x", "【1a", ""]);
    expect(filtered("x【0†", "y".repeat(150), "z".repeat(150), "w").pieces).toEqual([
      "x",
      "",
      `【0†${"y".repeat(150)}${"z".repeat(150)}`,
      "w",
      "",
    ]);
  });

  it("are the same for any chunking of the text", () => {
    const part = fc.constantFrom(
      "【",
      "】",
      "†",
      "0",
      "1",
      "7",
      "L1",
      " ",
      "😀",
      "a",
      "【0†L1】",
      "【1†L2†b】",
      "x".repeat(120),
    );
    fc.assert(
      fc.property(
        fc.array(part, { maxLength: 30 }),
        fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 60 }),
        (parts, sizes) => {
          const text = parts.join("");
          const pieces: string[] = [];
          for (let at = 0, turn = 0; at < text.length; turn++) {
            const size = sizes[turn % sizes.length] ?? 1;
            pieces.push(text.slice(at, at + size));
            at += size;
          }
          const { text: whole, annotations } = filtered(text);
          const cut = filtered(...pieces);
          expect({ text: cut.text, annotations: cut.annotations }).toEqual({ text: whole, annotations });
          expect(whole).toBe(reference(text));
        },
      ),
      { numRuns: 500 },
    );
  });

  it("cost one look where there are none", async () => {
    const filter = new CitationMarks(() => undefined);
    const touched = await charactersTouched(() => {
      for (let n = 0; n < 10_000; n++) filter.push(" token");
    });
    expect(touched).toBeLessThanOrEqual(10_000 * " token".length);
  });

  it.each(["【1†", "【", "【1†a†", "【1†L1】"])("cost linear work where all looks like one: %s", async (piece) => {
    const text = piece.repeat(20_000 / piece.length);
    // Each bracket may look as far as the longest mark, some times over.
    expect(await charactersTouched(() => filtered(text))).toBeLessThan(1_000 * text.length);
    expect(await charactersTouched(() => filtered(...text))).toBeLessThan(1_000 * text.length);
  });
});

describe("the mark of a file's passage", () => {
  const cited = (source: string): Cited | undefined =>
    source !== "0:1"
      ? undefined
      : {
          text: "",
          annotation: ({ units: index }) => ({ type: "file_citation", index, file_id: "file-1", filename: "a.md" }),
        };

  it("is taken out of the text, and its place is counted in UTF-16 units, however the text comes in pieces", () => {
    const text = "😀 An owl【0:1†source】 hoots【7:1†source】【0:1†source】.";
    fc.assert(
      fc.property(fc.array(fc.nat({ max: text.length }), { maxLength: 8 }), (cuts) => {
        const filter = new CitationMarks(cited);
        const places = [0, ...cuts.toSorted((one, other) => one - other), text.length];
        const pieces = places.slice(1).map((to, index) => text.slice(places[index], to));
        const given = [...pieces.map((piece) => filter.push(piece)), filter.end()];
        const shown = given.map((each) => each.text).join("");
        expect(shown).toBe("😀 An owl hoots【7:1†source】.");
        const cutAt = given.flatMap(({ annotations }) => annotations.map((each) => "index" in each && each.index));
        expect(cutAt).toEqual([9, 27]);
      }),
    );
  });
});
