import { JsonMember } from "@responses-edge/bounded-io/json-text";
import { countedBody } from "@responses-edge/engines/passed-usage";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { codePoint } from "../../../test/code-points.ts";

/** The usage of answers of vLLM's own endpoints, read from their bytes. */

const RESERVED = { input: 700, cached: 0, output: 5_000 };
const JSON_TYPE = "application/json";
const EVENTS_TYPE = "text/event-stream; charset=utf-8";

/** The bytes that a client gets of an answer that comes in pieces of these sizes, and what is counted. */
async function counted(
  answer: string | Uint8Array<ArrayBuffer>,
  { type = JSON_TYPE, hidesUsage = false, sizes = [7], leavesAfter = Number.POSITIVE_INFINITY } = {},
) {
  const bytes = typeof answer === "string" ? new TextEncoder().encode(answer) : answer;
  let at = 0;
  let piece = 0;
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      const size = sizes[piece++ % sizes.length] ?? 1;
      if (at < bytes.length) controller.enqueue(bytes.slice(at, at + size));
      at += size;
      if (at >= bytes.length) controller.close();
    },
  });
  const used: unknown[] = [];
  const reader = countedBody(body, { type, hidesUsage, reserved: () => RESERVED }, (told) =>
    used.push(told),
  ).getReader();
  const got: number[] = [];
  for (let reads = 0; ; reads += 1) {
    if (reads === leavesAfter) await reader.cancel();
    const { done, value } = await reader.read();
    if (done) break;
    got.push(...value);
  }
  expect(used).toHaveLength(1);
  return { text: new TextDecoder().decode(Uint8Array.from(got)), used: used[0] };
}

const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 8 });
const count = fc.nat(1_000_000);
/** Texts and keys that look like usage but are not. */
const deceiving = fc.constantFrom(
  '"usage"',
  '"usage":{"prompt_tokens":9}',
  '\\"usage',
  "usage",
  '{"usage":',
  "\\",
  '"',
);
const value = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 3 },
    fc.oneof(
      fc.string({ unit: codePoint, maxLength: 10 }),
      deceiving,
      fc.double({ noNaN: true }),
      fc.constant(null),
      fc.boolean(),
    ),
    fc.array(tie("value"), { maxLength: 4 }),
    fc.dictionary(fc.oneof(fc.string({ maxLength: 5 }), deceiving), tie("value"), { maxKeys: 4 }),
  ),
})).value;
const members = fc.array(fc.tuple(fc.oneof(fc.string({ maxLength: 8 }), deceiving), value), { maxLength: 6 });
const indent = fc.constantFrom(0, 1, 3);

/** An object with a member at a place among others, none of which has its name. */
function objectWith(others: [string, unknown][], place: number, name: string, member: unknown): object {
  const rest = others.filter(([key]) => key !== name && key !== "__proto__" && !/^\d+$/.test(key));
  rest.splice(place % (rest.length + 1), 0, [name, member]);
  return Object.fromEntries(rest);
}

describe("usage in a JSON answer", () => {
  it("is found in any place and any pieces, and never in text that only looks like it", async () => {
    await fc.assert(
      fc.asyncProperty(
        members,
        fc.nat(),
        count,
        count,
        sizes,
        indent,
        async (others, place, input, output, sizes, space) => {
          const usage = { prompt_tokens: input, completion_tokens: output, total_tokens: input + output };
          const text = JSON.stringify(objectWith(others, place, "usage", usage), null, space);
          expect(await counted(text, { sizes })).toEqual({ text, used: { input, cached: 0, output } });
        },
      ),
      { numRuns: 200 },
    );
  });

  it("that is missing is the reservation", async () => {
    await fc.assert(
      fc.asyncProperty(members, sizes, async (others, sizes) => {
        const text = JSON.stringify(objectWith(others, 0, "usage", null));
        expect(await counted(text, { sizes })).toEqual({ text, used: RESERVED });
      }),
      { numRuns: 200 },
    );
  });

  it("is found before the ids and probabilities of a long prompt", async () => {
    const ids = Array.from({ length: 300_000 }, (_, index) => index % 1_000);
    const usage = { prompt_tokens: 300_000, total_tokens: 300_004, completion_tokens: 4 };
    const text = JSON.stringify({ id: "x", choices: [], usage, prompt_logprobs: null, prompt_token_ids: ids });
    expect((await counted(text, { sizes: [65_536] })).used).toEqual({ input: 300_000, cached: 0, output: 4 });
  });

  it.each<[what: string, usage: object, used: object]>([
    [
      "chat",
      { prompt_tokens: 9, completion_tokens: 2, prompt_tokens_details: { cached_tokens: 5 } },
      { input: 9, cached: 5, output: 2 },
    ],
    ["embeddings", { prompt_tokens: 9, total_tokens: 9, completion_tokens: 0 }, { input: 9, cached: 0, output: 0 }],
    ["rerank", { prompt_tokens: 8, total_tokens: 8 }, { input: 8, cached: 0, output: 0 }],
    ["rerank of Jina's", { total_tokens: 8 }, { input: 8, cached: 0, output: 0 }],
    [
      "messages",
      { input_tokens: 3, output_tokens: 2, cache_read_input_tokens: 16, cache_creation_input_tokens: 1 },
      { input: 20, cached: 16, output: 2 },
    ],
    ["speech in tokens", { type: "tokens", input_tokens: 14, output_tokens: 45 }, { input: 14, cached: 0, output: 45 }],
    ["speech in seconds", { type: "duration", seconds: 3 }, { ...RESERVED, units: 3 }],
    ["numbers that are none", { prompt_tokens: "9", completion_tokens: -1 }, RESERVED],
  ])("has the numbers of %s", async (_what, usage, used) => {
    expect((await counted(JSON.stringify({ usage, more: [1] }))).used).toEqual(used);
  });

  it("is read of JSON alone", async () => {
    const text = '{"usage":{"prompt_tokens":1,"completion_tokens":1}}';
    expect((await counted(text, { type: "application/octet-stream" })).used).toEqual(RESERVED);
  });
});

const chunk = (content: string, more: object = {}) => ({
  id: "c",
  choices: [{ index: 0, delta: { content } }],
  ...more,
});
const last = { id: "c", choices: [], usage: { prompt_tokens: 11, completion_tokens: 3 }, system_fingerprint: "f" };

describe("usage in a stream", () => {
  const event = fc.record({
    data: members.map((pairs) => objectWith(pairs, 0, "choices", [1])),
    comment: fc.boolean(),
  });
  const newline = fc.constantFrom("\n", "\r\n");

  it("is found and left out in any pieces; every other byte is the client's", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(event, { maxLength: 5 }),
        fc.nat(),
        newline,
        sizes,
        fc.boolean(),
        async (events, place, end, sizes, hidesUsage) => {
          const written = events.map(({ data, comment }) => {
            const { usage: _, ...rest } = data as { usage?: unknown };
            return `${comment ? `: ping${end}` : ""}data: ${JSON.stringify(rest)}${end}${end}`;
          });
          const own = `data: ${JSON.stringify(last)}${end}${end}`;
          const at = place % (written.length + 1);
          const before = written.slice(0, at).join("");
          const after = `${written.slice(at).join("")}data: [DONE]${end}${end}`;
          const { text, used } = await counted(before + own + after, { type: EVENTS_TYPE, hidesUsage, sizes });
          expect(text).toBe(before + (hidesUsage ? "" : own) + after);
          expect(used).toEqual({ input: 11, cached: 0, output: 3 });
        },
      ),
      { numRuns: 150 },
    );
  });

  it("stays where it stands beside an answer, also of events that are too long to be held", async () => {
    const usage = { prompt_tokens: 5, completion_tokens: 1 };
    for (const content of ["a", "b".repeat(40_000)]) {
      const text = `data: ${JSON.stringify(chunk(content, { usage }))}\n\n`;
      const options = { type: EVENTS_TYPE, hidesUsage: true, sizes: [1_000] };
      expect(await counted(text, options)).toEqual({ text, used: { input: 5, cached: 0, output: 1 } });
    }
  });

  it("of Anthropic's is in the first event and the last", async () => {
    const start = { type: "message_start", message: { content: [], usage: { input_tokens: 19, output_tokens: 0 } } };
    const delta = { type: "message_delta", usage: { input_tokens: 3, output_tokens: 4, cache_read_input_tokens: 16 } };
    const text = [start, delta].map((each) => `event: ${each.type}\ndata: ${JSON.stringify(each)}\n\n`);
    const type = EVENTS_TYPE;
    expect((await counted(text.join(""), { type })).used).toEqual({ input: 19, cached: 16, output: 4 });
    // The client has left after the first.
    expect((await counted(text[0] ?? "", { type })).used).toEqual({ input: 19, cached: 0, output: 1 });
  });

  it("that is missing is a token for each event, and more for long ones, within the reservation", async () => {
    const type = EVENTS_TYPE;
    const stream = (content: string) => `data: ${JSON.stringify(chunk(content))}\n\n`.repeat(10);
    expect((await counted(stream("a"), { type })).used).toEqual({ input: 700, cached: 0, output: 10 });
    const long = (await counted(stream("a".repeat(1_000)), { type })).used as { output: number };
    expect(long.output).toBeGreaterThan(1_500);
    expect((await counted(stream("a".repeat(50_000)), { type, sizes: [9_000] })).used).toMatchObject({ output: 5_000 });
  });

  it("is the last reported one when the reader disconnects", async () => {
    const text = `data: ${JSON.stringify(chunk("a"))}\n\n`.repeat(1_000);
    const { used } = await counted(text, { type: EVENTS_TYPE, sizes: [500], leavesAfter: 3 });
    expect(used).toMatchObject({ input: 700 });
    expect((used as { output: number }).output).toBeGreaterThan(10);
  });
});

describe("the search for a member", () => {
  it("holds nothing of a text but the member, and nothing of one that is too long", () => {
    const found: unknown[] = [];
    const member = new JsonMember("usage", (value) => found.push(value));
    const encode = (text: string) => new TextEncoder().encode(text);
    member.push(encode(`{"${"k".repeat(1_000_000)}":1,"usage":"${"v".repeat(1_000_000)}","usage":{"a":[`));
    member.push(encode(`1,{"b":"}"}]} , "x":2}`));
    expect(found).toEqual([{ a: [1, { b: "}" }] }]);
  });

  it("reads a key that is written with escapes", () => {
    const found: unknown[] = [];
    new JsonMember("usage", (value) => found.push(value)).push(new TextEncoder().encode('{"\\u0075sage" : 5}'));
    expect(found).toEqual([5]);
  });
});
