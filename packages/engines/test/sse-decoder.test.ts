import { SseDecoder } from "@responses-edge/engines/vllm-stream";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { codePoint } from "../../../test/code-points.ts";

const encode = (text: string) => new TextEncoder().encode(text);

/** All payloads of a stream that comes in these pieces. */
function decode(...pieces: (string | Uint8Array)[]): string[] {
  const decoder = new SseDecoder();
  const payloads = pieces.flatMap((piece) => decoder.push(typeof piece === "string" ? encode(piece) : piece));
  return [...payloads, ...decoder.end()];
}

describe("SseDecoder", () => {
  it.each<[what: string, stream: string, payloads: string[]]>([
    ["a line", "data: a\n\n", ["a"]],
    ["no space after the colon", "data:a\n\n", ["a"]],
    ["only one space is the separator", "data:  a\n\n", [" a"]],
    ["a byte order mark at the beginning", "\ufeffdata: a\n\n", ["a"]],
    ["CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]],
    ["comments", ": hello\n\ndata: a\n: bye\n\n", ["a"]],
    ["other fields", "event: x\nid: 1\nretry: 5\ndata: a\n\n", ["a"]],
    ["no data", "data:\n\ndata: \n\ndata: a\n\n", ["a"]],
    ["a last line without its end", 'data: a\n\ndata: {"b":1}', ["a", '{"b":1}']],
    ["a last line that was cut off", 'data: a\n\ndata: {"b":', ["a"]],
    ["a field that only begins like data", "database: a\n\n", []],
    ["[DONE] is a payload as any other", "data: [DONE]\n\n", ["[DONE]"]],
    ["nothing", "", []],
    ["line separators that are none in SSE", "data: a\u2028b\u0085c\n\n", ["a\u2028b\u0085c"]],
  ])("%s", (_what, stream, payloads) => {
    expect(decode(stream)).toEqual(payloads);
  });

  it("gives a payload with the read that completes it, and not before", () => {
    const decoder = new SseDecoder();
    expect(decoder.push(encode("da"))).toEqual([]);
    expect(decoder.push(encode("ta: a"))).toEqual([]);
    expect(decoder.push(encode("\n"))).toEqual(["a"]);
    expect(decoder.push(encode("\ndata: b\n\ndata: c\n"))).toEqual(["b", "c"]);
  });

  it("joins a character that is cut between reads", () => {
    const bytes = encode("data: 世\n");
    expect(decode(bytes.subarray(0, 7), bytes.subarray(7, 8), bytes.subarray(8))).toEqual(["世"]);
  });

  it("replaces invalid UTF-8, and continues", () => {
    expect(decode(new Uint8Array([...encode("data: a"), 0xff, ...encode("b\n\ndata: c\n")]))).toEqual([
      "a\ufffdb",
      "c",
    ]);
  });

  it("refuses a line without end as malformed, and not by running out of memory", () => {
    const decoder = new SseDecoder();
    const piece = encode("x".repeat(4 * 1024 * 1024));
    expect(() => {
      for (let count = 0; count < 20; count += 1) decoder.push(piece);
    }).toThrow("malformed");
  });

  it("takes a long line in many small reads in linear time", () => {
    const text = "x".repeat(300_000);
    const bytes = encode(`data: ${text}\n`);
    const pieces: Uint8Array[] = [];
    for (let at = 0; at < bytes.length; at += 10) pieces.push(bytes.subarray(at, at + 10));
    expect(decode(...pieces)).toEqual([text]);
  });

  it("gives the same payloads for every chunking", () => {
    const line = fc.oneof(
      fc.string({ unit: codePoint }).map((text) => `data: ${text.replaceAll(/[\r\n]/g, "")}`),
      fc.constantFrom("", ": comment", "event: x", "data:", "data: [DONE]"),
    );
    const stream = fc
      .array(fc.tuple(line, fc.constantFrom("\n", "\r\n")))
      .map((lines) => encode(lines.flat().join("")));
    fc.assert(
      fc.property(stream, fc.array(fc.nat(200)), (bytes, cuts) => {
        const at = [0, ...cuts.map((cut) => cut % (bytes.length + 1)).sort((a, b) => a - b), bytes.length];
        const pieces = at.slice(1).map((end, index) => bytes.subarray(at[index], end));
        expect(decode(...pieces)).toEqual(decode(bytes));
      }),
      { numRuns: 300 },
    );
  });
});
