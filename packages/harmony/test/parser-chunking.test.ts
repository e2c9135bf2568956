import type { Segment } from "@responses-edge/harmony";
import {
  CALL,
  CHANNEL,
  type Chunk,
  CONSTRAIN,
  END,
  ENDOFTEXT,
  type EndReason,
  FIRST_SPECIAL_ID,
  type HarmonyDelta,
  HarmonyParser,
  MESSAGE,
  PieceReader,
  RETURN,
  SPECIAL_TOKENS,
  START,
  specialTokenName,
} from "@responses-edge/harmony";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

const RUNS = { numRuns: 300 };

function newParser(expectsJson = false): HarmonyParser {
  return new HarmonyParser({ functions: new Map([["f", "f"]]), builtins: new Set(["python"]), expectsJson });
}

/** The deltas, with those of one text joined, which must not depend on the chunking. */
function joined(deltas: readonly HarmonyDelta[]): HarmonyDelta[] {
  const result: HarmonyDelta[] = [];
  for (const delta of deltas) {
    const last = result.at(-1);
    if (delta.kind === "reasoning" && last?.kind === "reasoning") {
      result[result.length - 1] = { ...last, text: last.text + delta.text };
    } else if (delta.kind === "text" && last?.kind === "text" && last.phase === delta.phase) {
      result[result.length - 1] = { ...last, text: last.text + delta.text };
    } else if (delta.kind === "tool_call" && last?.kind === "tool_call" && last.index === delta.index) {
      result[result.length - 1] = { ...last, arguments: last.arguments + delta.arguments };
    } else {
      result.push(delta);
    }
  }
  return result;
}

function parse(
  pushes: readonly (readonly Segment[])[],
  reason: EndReason = "stop",
  expectsJson = false,
): HarmonyDelta[] {
  const parser = newParser(expectsJson);
  const out: HarmonyDelta[] = [];
  for (const pieces of pushes) parser.push(pieces, pieces.length, out);
  parser.end(reason, out);
  return joined(out);
}

/** Text that was shown as output. */
function shown(deltas: readonly HarmonyDelta[]): string {
  return deltas.map((delta) => (delta.kind === "text" ? delta.text : "")).join("|");
}

/** Cuts texts and groups what results, both as the numbers say. */
function chunked(segments: readonly Segment[], sizes: readonly number[]): Segment[][] {
  const pushes: Segment[][] = [[]];
  let turn = 0;
  const next = () => sizes[turn++ % sizes.length] ?? 1;
  let room = next();
  const add = (segment: Segment) => {
    if (room <= 0) {
      pushes.push([]);
      room = next();
    }
    room -= 1;
    pushes.at(-1)?.push(segment);
  };
  for (const segment of segments) {
    if (typeof segment === "number") {
      add(segment);
      continue;
    }
    for (let at = 0; at < segment.length; ) {
      const length = next();
      add(segment.slice(at, at + length));
      at += length;
    }
  }
  return pushes;
}

const sizes = fc.array(fc.integer({ min: 1, max: 12 }), { minLength: 1, maxLength: 8 });
const reason = fc.constantFrom<EndReason>("stop", "length");

const special = fc.constantFrom<number>(...Object.values(SPECIAL_TOKENS), 200_000, 200_013, 201_088);
const literal = fc.constantFrom(
  "<|end|>",
  "<|start|>",
  "<|channel|>",
  "<|return|>",
  "<|reserved_200013|>",
  "<|x|>",
  "<|",
);
const words = fc.constantFrom(
  ..."assistant analysis final commentary comment user system functions.f functions.x f python json code".split(" "),
  ...[" ", " to=functions.f", " to=python", " to=assistant", " to=", ":name", '{"a":1}', "[1]", "\n", "–", "finally"],
);
const text = fc.oneof(fc.string({ unit: "grapheme" }), literal, words, fc.constant("long ".repeat(60)));
const garbage = fc.array(fc.oneof(special, words, text), { maxLength: 30 });

/** A valid message: its header and its text, and its deltas. */
const message = fc.record({
  header: fc.constantFrom<Segment[]>(
    [CHANNEL, "analysis"],
    [CHANNEL, "commentary"],
    [CHANNEL, "final"],
    [CHANNEL, "commentary to=functions.f ", CONSTRAIN, "json"],
    [" to=functions.f", CHANNEL, "commentary json"],
    [CHANNEL, "analysis to=python code"],
  ),
  text: fc.array(text, { maxLength: 5 }).map((parts) => parts.join("")),
});

function toSegments(messages: readonly { header: Segment[]; text: string }[]): Segment[] {
  const segments = messages.flatMap(({ header, text }) => [START, "assistant", ...header, MESSAGE, text, END]);
  // The prompt has the first two.
  return segments.slice(2).filter((segment) => segment !== "");
}

const wellFormed = fc.array(message, { maxLength: 6 }).map(toSegments);

describe("any chunking of a stream of tokens", () => {
  it("gives the same items", () => {
    fc.assert(
      fc.property(fc.oneof(wellFormed, garbage), sizes, reason, fc.boolean(), (segments, by, why, expectsJson) => {
        // Text alone may be a server's that strips the markers, which is refused.
        fc.pre(segments.some((segment) => typeof segment === "number"));
        const whole = parse([segments], why, expectsJson);
        expect(parse(chunked(segments, by), why, expectsJson)).toEqual(whole);
        const characters = segments.flatMap<Segment>((segment) =>
          typeof segment === "number" ? [segment] : [...segment],
        );
        expect(
          parse(
            characters.map((character) => [character]),
            why,
            expectsJson,
          ),
        ).toEqual(whole);
      }),
      RUNS,
    );
  });

  it("emits messages in order, each after its item", () => {
    fc.assert(
      fc.property(garbage, sizes, (segments, by) => {
        fc.pre(segments.some((segment) => typeof segment === "number"));
        const deltas = parse(chunked(segments, by));
        const indices = deltas.flatMap((delta) => (delta.kind === "message" ? [delta.index] : []));
        expect(indices).toEqual(indices.map((_index, at) => at));
        deltas.forEach((delta, at) => {
          if (delta.kind === "item_done") expect(deltas[at + 1]).toMatchObject({ kind: "message" });
          if (delta.kind === "item_done") expect(deltas[at + 1]).toHaveProperty("itemKind");
        });
      }),
      RUNS,
    );
  });
});

describe("the tokens of reasoning", () => {
  /** Every token of some text with its id, `length` characters each; a special token is its own. */
  const toTokens = (segments: readonly Segment[], length: number) =>
    segments.flatMap((segment): { piece: Segment; id: number }[] =>
      typeof segment === "number"
        ? [{ piece: segment, id: segment }]
        : (segment.match(new RegExp(`.{1,${length}}`, "gsu")) ?? []).map((piece) => ({ piece, id: 1 })),
    );

  it("have the same count for any chunking, which is at most their number", () => {
    fc.assert(
      fc.property(
        fc.oneof(wellFormed, garbage),
        fc.integer({ min: 1, max: 6 }),
        sizes,
        reason,
        (said, length, by, why) => {
          const tokens = toTokens(said, length);
          fc.pre(tokens.some(({ piece }) => typeof piece === "number"));
          const count = (lengths: readonly number[]) => {
            const parser = newParser();
            const out: HarmonyDelta[] = [];
            for (let at = 0, turn = 0; at < tokens.length; turn += 1) {
              const some = tokens.slice(at, at + (lengths[turn % lengths.length] ?? 1));
              at += some.length;
              parser.push(
                some.map(({ piece }) => piece),
                some.map(({ id }) => id),
                out,
              );
            }
            parser.end(why, out);
            return parser.reasoningTokens;
          };
          const whole = count([tokens.length]);
          expect(whole).toBeGreaterThanOrEqual(0);
          expect(whole).toBeLessThanOrEqual(tokens.length);
          expect(count(by)).toBe(whole);
          expect(count([1])).toBe(whole);
        },
      ),
      { numRuns: 1_000 },
    );
  });

  it("are a number where a header without a channel has its text before a marker", () => {
    const parser = newParser();
    const out: HarmonyDelta[] = [];
    parser.push(["system", " commentary", " to=", "x ", CONSTRAIN], [1, 1, 1, 1, CONSTRAIN], out);
    parser.push([END], [END], out);
    parser.push(["we need", CONSTRAIN, END], [1, 1, CONSTRAIN, END], out);
    parser.end("stop", out);
    expect(parser.reasoningTokens).toEqual(expect.any(Number));
    expect(parser.reasoningTokens).not.toBeNaN();
  });
});

describe("text of ordinary tokens", () => {
  it("stays text, with any content", () => {
    fc.assert(
      fc.property(fc.array(message, { minLength: 1, maxLength: 5 }), sizes, (messages, by) => {
        const deltas = parse(chunked(toSegments(messages), by));
        const texts = deltas.flatMap((delta) => (delta.kind === "message" ? [delta.message] : []));
        expect(texts).toMatchObject(messages.map(({ text }) => ({ content: [{ type: "text", text }] })));
      }),
      RUNS,
    );
  });
});

describe("hidden text", () => {
  const SECRET = "☢";
  const channel = fc.constantFrom<Segment[]>(
    [CHANNEL, "analysis"],
    [CHANNEL, "analysis to=elsewhere"],
    [CHANNEL, "analysis ", CONSTRAIN, "json"],
    [" to=functions.f", CHANNEL, "analysis"],
  );
  const hidden = fc.record({ header: channel, text: fc.string().map((tail) => `${SECRET}${tail}${SECRET}`) });
  const answer = fc.record({
    header: fc.constantFrom<Segment[]>(
      [CHANNEL, "final"],
      [CHANNEL, "commentary"],
      [CHANNEL, "final ", CONSTRAIN, "json"],
    ),
    text: fc.string(),
  });
  const messages = fc.array(fc.oneof(hidden, answer), { maxLength: 6 }).map(toSegments);

  it("is not shown if any two special tokens are missing, or the end is", () => {
    fc.assert(
      fc.property(messages, fc.array(fc.nat(), { maxLength: 2 }), fc.nat(), reason, (all, missing, cut, why) => {
        const segments = all.slice(0, all.length - (cut % (all.length + 1)));
        const specials = segments.flatMap((segment, at) => (typeof segment === "number" ? [at] : []));
        const without = new Set(missing.map((each) => specials[each % Math.max(1, specials.length)]));
        const rest = segments.filter((_segment, at) => !without.has(at));
        fc.pre(rest.some((segment) => typeof segment === "number"));
        expect(shown(parse([rest], why))).not.toContain(SECRET);
      }),
      { numRuns: 500 },
    );
  });

  it("is not shown on an unknown channel", () => {
    const name = fc.string({ unit: "grapheme" }).filter((each) => !/^\s*$|^\s*final|comment/.test(each));
    fc.assert(
      fc.property(
        name,
        fc.string(),
        fc.boolean(),
        fc.constantFrom(END, RETURN, CALL),
        (channel, tail, delimited, end) => {
          const segments = [CHANNEL, channel, ...(delimited ? [MESSAGE] : [" "]), `${SECRET}${tail}`, end];
          expect(shown(parse([segments]))).not.toContain(SECRET);
        },
      ),
      RUNS,
    );
  });
});

describe("reading chunks of a server", () => {
  const BYTES = { bytes: (id: number) => new Uint8Array([id]) };

  /** Segments as tokens that are bytes, or special. */
  function toIds(segments: readonly Segment[]): number[] {
    return segments.flatMap((segment) =>
      typeof segment === "number" ? [segment] : [...new TextEncoder().encode(segment)],
    );
  }

  /** vLLM's stream: the text lags behind the ids within a character, and a stop token at the end has no text. */
  function serve(ids: readonly number[], by: readonly number[]): Chunk[] {
    const chunks: { text: string; ids: number[] }[] = [];
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true, fatal: false });
    let room = 0;
    ids.forEach((id, at) => {
      if (room === 0) {
        chunks.push({ text: "", ids: [] });
        room = by[chunks.length % by.length] ?? 1;
      }
      room -= 1;
      const isStop = at === ids.length - 1 && (id === RETURN || id === CALL);
      const chunk = chunks[chunks.length - 1];
      if (chunk === undefined) return;
      chunk.ids.push(id);
      if (id < FIRST_SPECIAL_ID) chunk.text += decoder.decode(new Uint8Array([id]), { stream: true });
      else if (!isStop) chunk.text += specialTokenName(id);
    });
    return chunks;
  }

  function read(chunks: readonly Chunk[]): { pushes: Segment[][]; decoded: boolean } {
    const reader = new PieceReader();
    let decoded = false;
    const pushes = chunks.map((chunk) => {
      const pieces = reader.read(chunk);
      if (pieces !== undefined) return pieces;
      expect(reader.needsTokenizer).toBe(true);
      decoded = true;
      reader.useTokenizer(BYTES);
      return reader.read(chunk) ?? [];
    });
    return { pushes: [...pushes, reader.flush()], decoded };
  }

  /** Neighbouring texts joined. */
  const normal = (pushes: readonly (readonly Segment[])[]): Segment[] => {
    const result: Segment[] = [];
    for (const segment of pushes.flat()) {
      const last = result.at(-1);
      if (typeof segment === "string" && typeof last === "string") result[result.length - 1] = last + segment;
      else if (segment !== "") result.push(segment);
    }
    return result;
  };

  const ended = fc
    .tuple(fc.oneof(wellFormed, garbage), fc.constantFrom<Segment[]>([RETURN], [CALL], []))
    .map(([segments, end]) => [...segments, ...end]);

  it("finds exactly the special tokens, for any text and any chunking", () => {
    fc.assert(
      fc.property(ended, sizes, (segments, by) => {
        expect(normal(read(serve(toIds(segments), by)).pushes)).toEqual(normal([segments]));
      }),
      RUNS,
    );
  });

  it("needs no tokenizer where each token comes alone, or no text has a literal", () => {
    fc.assert(
      fc.property(ended, sizes, (segments, by) => {
        expect(read(serve(toIds(segments), [1])).decoded).toBe(false);
        // A stop token that stops nothing could also be a literal before one that does.
        const stops = (segment: Segment) => segment === RETURN || segment === CALL || segment === ENDOFTEXT;
        const clean = segments
          .filter((segment, at) => at === segments.length - 1 || !stops(segment))
          .map((segment) => (typeof segment === "string" ? segment.replaceAll("<", "") : segment));
        if (clean.at(-1) === ENDOFTEXT) clean.pop();
        expect(read(serve(toIds(clean), by)).decoded).toBe(false);
      }),
      RUNS,
    );
  });

  it("finds the same by literals where there are no ids, if no text has one", () => {
    fc.assert(
      fc.property(ended, sizes, sizes, (segments, by, cuts) => {
        const clean = segments.map((segment) =>
          typeof segment === "string" ? segment.replaceAll("<|", "<") : segment,
        );
        const output = clean.map((each) => (typeof each === "number" ? specialTokenName(each) : each)).join("");
        const chunks = chunked([output], cuts)
          .flat()
          .map((text) => ({ text: String(text), ids: undefined }));
        const pieces = read(chunks).pushes;
        expect(normal(pieces)).toEqual(normal([clean]));
        if (clean.some((segment) => typeof segment === "number")) {
          expect(parse(pieces)).toEqual(parse(read(serve(toIds(clean), by)).pushes));
        }
      }),
      RUNS,
    );
  });

  it("never throws, whatever text comes with whatever ids", () => {
    const ids = fc.option(fc.array(fc.oneof(special, fc.nat(255)), { maxLength: 6 }), { nil: undefined });
    fc.assert(
      fc.property(fc.array(fc.record({ text, ids }), { maxLength: 20 }), (chunks) => {
        const { pushes } = read(chunks);
        parse([[END], ...pushes]);
      }),
      RUNS,
    );
  });
});
