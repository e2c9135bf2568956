import { boundaryOf, MalformedForm, type PartLimits, readParts } from "@responses-edge/bounded-io/multipart";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

const encoder = new TextEncoder();
const latin = (text: string) => Uint8Array.from(text, (char) => char.charCodeAt(0));

/** Gives bytes in pieces of these lengths, again and again, through one buffer, as a reader of the runtime's does. */
function readerOf(bytes: Uint8Array, lengths: readonly number[]) {
  const buffer = new Uint8Array(Math.max(...lengths));
  let at = 0;
  let turn = 0;
  const taken = () => at;
  const read = async () => {
    if (at >= bytes.length) return undefined;
    const piece = bytes.subarray(at, at + (lengths[turn++ % lengths.length] ?? 1));
    at += piece.length;
    buffer.fill(0);
    buffer.set(piece);
    return buffer.subarray(0, piece.length);
  };
  return { read, taken };
}

async function partsOf(
  bytes: Uint8Array,
  { boundary = "b", lengths = [bytes.length || 1], limits = {} as Partial<PartLimits> } = {},
) {
  const parts: { name: string; filename: string | null; type: string | null; bytes: number[] }[] = [];
  for await (const { body, ...rest } of readParts(readerOf(bytes, lengths).read, boundary, limits)) {
    const copies: Uint8Array[] = [];
    for await (const each of body) copies.push(each.slice());
    parts.push({ ...rest, bytes: copies.flatMap((copy) => [...copy]) });
  }
  return parts;
}

const text = (bytes: readonly number[]) => new TextDecoder().decode(Uint8Array.from(bytes));
const field = (name: string, value: string) =>
  `--b\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`;

describe("a form", () => {
  it("that the runtime has written is read unchanged, with any cuts", async () => {
    const bytes = fc.uint8Array({ maxLength: 400 });
    // Line breaks and dashes are what a boundary begins with.
    const tricky = fc
      .array(fc.constantFrom("\r", "\n", "-", "\r\n--", "x"), { maxLength: 60 })
      .map((all) => latin(all.join("")));
    const content = fc.oneof(bytes, tricky);
    const name = fc
      .string({ minLength: 1, maxLength: 12, unit: fc.constantFrom("a", "é", '"', ";", " ", "\\", "[", "]", "=") })
      .filter((text) => !text.endsWith("\\"));
    const lengths = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 8 });
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ name, content, filename: fc.option(name) }), { maxLength: 5 }),
        lengths,
        async (all, cuts) => {
          const form = new FormData();
          for (const { name, content, filename } of all) {
            if (filename === null) form.append(name, text([...content]).replaceAll(/\r\n|\r|\n/g, ""));
            else form.append(name, new File([content], filename, { type: "application/x-any" }));
          }
          const written = new Response(form);
          const boundary = boundaryOf(written.headers.get("content-type") ?? "") ?? "";
          const read = await partsOf(new Uint8Array(await written.arrayBuffer()), { boundary, lengths: cuts });
          expect(read.map((part) => part.bytes)).toEqual(
            all.map(({ content, filename }) =>
              filename === null ? [...encoder.encode(text([...content]).replaceAll(/\r\n|\r|\n/g, ""))] : [...content],
            ),
          );
          expect(read.map((part) => part.filename === null)).toEqual(all.map(({ filename }) => filename === null));
        },
      ),
      { numRuns: 200 },
    );
  });

  it("may have a preamble, an epilogue, padding after boundaries, and parts in any order", async () => {
    const body = latin(`before\r\n${field("a", "1").replace("--b", "--b \t")}${field("b", "")}--b--\r\nafter`);
    const parts = await partsOf(body, { lengths: [3] });
    expect(parts.map(({ name, bytes }) => [name, text(bytes)])).toEqual([
      ["a", "1"],
      ["b", ""],
    ]);
  });

  it("may have a part without a body, which ends with its headers (RFC 2046)", async () => {
    for (const lengths of [[1], [200]]) {
      const body = latin(`--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n--b--`);
      expect(await partsOf(body, { lengths })).toEqual([{ name: "a", filename: null, type: null, bytes: [] }]);
    }
  });

  it.each([
    ['name="a"; filename="x.pdf"', "x.pdf"],
    ["name=a; filename=x.pdf", "x.pdf"],
    ['filename="a%22b%0D%0A.txt"; name=a', 'a"b\r\n.txt'],
    ['name="a"; filename="a\\"b\\\\c.txt"', 'a"b\\c.txt'],
    ['name="a"; filename="C:\\dir\\x.txt"', "C:\\dir\\x.txt"],
    ['name="a"; filename="a;b=c.txt"', "a;b=c.txt"],
    ['name="a"; filename="naïve 日本.txt"', "naïve 日本.txt"],
    ["name=a; filename*=utf-8''na%C3%AFve.txt", "naïve.txt"],
    ["name=a; filename*=utf-8''na%C3%AFve.txt; filename=na_ve.txt", "naïve.txt"],
    ['name=a; filename="=?utf-8?B?bmHDr3ZlLnR4dA==?="', "naïve.txt"],
    ['name=a; filename="=?iso-8859-1?Q?na=EFve_1.txt?="', "naïve 1.txt"],
    ['name=a; filename="=?utf-8?B?/w==?="', "=?utf-8?B?/w==?="],
    ['name="a"; filename=""', ""],
    ["name=a; filename*=utf-8''%C3", null],
  ])("has the name of a file as clients write it: %s", async (disposition, filename) => {
    const body = encoder.encode(`--b\r\ncontent-disposition: form-data; ${disposition}\r\n\r\nx\r\n--b--\r\n`);
    expect(await partsOf(body)).toEqual([{ name: "a", filename, type: null, bytes: [120] }]);
  });

  it("has parts with types, and with their parameters", async () => {
    const body = latin(
      '--b\r\nContent-Type: text/plain; charset=x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n--b--',
    );
    expect(await partsOf(body)).toEqual([{ name: "a", filename: null, type: "text/plain; charset=x", bytes: [] }]);
  });

  it("continues after an unread or partly read part", async () => {
    const body = latin(`${field("a", "x".repeat(1000))}${field("b", "y".repeat(1000))}${field("c", "z")}--b--`);
    const names: string[] = [];
    for await (const part of readParts(readerOf(body, [7]).read, "b")) {
      names.push(part.name);
      if (part.name === "b") for await (const _ of part.body) break;
    }
    expect(names).toEqual(["a", "b", "c"]);
  });

  it("is not read further than its last boundary", async () => {
    const body = latin(`${field("a", "1")}--b--${"x".repeat(10_000)}`);
    const { read, taken } = readerOf(body, [16]);
    for await (const _ of readParts(read, "b"));
    expect(taken()).toBeLessThan(body.length - 9_000);
  });
});

describe("a malformed form", () => {
  it("is one wherever a form breaks off", async () => {
    const whole = latin(`${field("a", "1\r\n--")}${field("b", "2")}--b--`);
    for (let length = 0; length < whole.length; length += 1) {
      await expect(partsOf(whole.subarray(0, length), { lengths: [5] })).rejects.toThrow(MalformedForm);
    }
    expect(await partsOf(whole, { lengths: [5] })).toHaveLength(2);
  });

  it.each([
    ["no boundary", `${"x".repeat(10_000)}\r\n--b--`, "begin with its boundary"],
    ["headers without an end", `--b\r\n${"x".repeat(10_000)}`, "headers of a part"],
    ["headers that are too long", `--b\r\nA: ${"x".repeat(9_000)}\r\n\r\n\r\n--b--`, "headers of a part"],
    ["no headers", "--b\r\n\r\n1\r\n--b--", "no 'Content-Disposition"],
    ["no disposition", "--b\r\nContent-Type: text/plain\r\n\r\n1\r\n--b--", "no 'Content-Disposition"],
    [
      "another disposition",
      '--b\r\nContent-Disposition: attachment; name="a"\r\n\r\n1\r\n--b--',
      "no 'Content-Disposition",
    ],
    ["no name", '--b\r\nContent-Disposition: form-data; filename="a"\r\n\r\n1\r\n--b--', "no name"],
    [
      "a longer boundary",
      '--bb\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--b--',
      "not followed by a line break",
    ],
    ["padding without an end", `--b${" ".repeat(10_000)}`, "not followed by a line break"],
    ["many parts", `${field("a", "1").repeat(65)}--b--`, "more than 64 parts"],
  ])("%s", async (_, body, message) => {
    for (const lengths of [[64], [10_000]]) {
      await expect(partsOf(latin(body), { lengths })).rejects.toThrow(message);
    }
  });

  it("costs no more than its length, with any headers", async () => {
    for (const piece of [';a="', '"', "\\", ";a=", " ", ";"]) {
      const header = piece.repeat(Math.floor(8_000 / piece.length));
      const body = latin(`--b\r\nContent-Disposition: form-data; name=a${header}\r\n\r\n1\r\n--b--`);
      await partsOf(body).catch((error: unknown) => expect(error).toBeInstanceOf(MalformedForm));
    }
  });
});

it.each([
  ["multipart/form-data; boundary=abc", "abc"],
  ['multipart/form-data; charset=utf-8; Boundary="a b;c"', "a b;c"],
  ["Multipart/Form-Data;boundary=----x", "----x"],
  ["multipart/mixed; boundary=abc", undefined],
  ["multipart/form-data", undefined],
  [`multipart/form-data; boundary=${"x".repeat(71)}`, undefined],
  ["multipart/form-data; boundary=", undefined],
])("the boundary in '%s' is %s", (type, boundary) => {
  expect(boundaryOf(type)).toBe(boundary);
});
