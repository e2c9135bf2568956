import { ChunkReader } from "@responses-edge/engines/chat/chunks";
import { StopStrings } from "@responses-edge/engines/stop-strings";
import type { ModelDelta } from "@responses-edge/turn/contract/engine";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

/** Logprobs of a chat model belong to the tokens of the shown text: vLLM sends them for all that it samples. */

interface Token {
  text: string;
  kind: "reasoning" | "content" | "hidden";
  /** Part of a character that the next token completes: it has no text of its own. */
  part?: boolean;
}

const encoder = new TextEncoder();

function entry(token: string, logprob: number) {
  return { token, logprob, bytes: [...encoder.encode(token)], top_logprobs: [] };
}

function chunk(delta: object, entries: object[]): string {
  return JSON.stringify({ choices: [{ index: 0, delta, logprobs: entries.length > 0 ? { content: entries } : null }] });
}

/** The text deltas of some chunks. */
function textsOf(payloads: readonly string[], stop?: string) {
  const reader = new ChunkReader({ stop: stop === undefined ? undefined : new StopStrings([stop], false) });
  const deltas: ModelDelta[] = [];
  for (const payload of payloads) reader.read(JSON.parse(payload), deltas);
  reader.read({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] }, deltas);
  return deltas.filter((delta) => delta.kind === "text");
}

/** Every token with its place as its logprob, so that each is told from all others. */
function tokensOf(payloads: readonly string[], stop?: string): (readonly [string, number])[] {
  return textsOf(payloads, stop).flatMap(({ logprobs = [] }) =>
    logprobs.map(({ token, logprob }) => [token, logprob] as const),
  );
}

/**
 * vLLM's chunks for some tokens: `sizes` are the tokens of each chunk, `held` the characters by which text lags behind.
 */
function sent(tokens: readonly Token[], sizes: readonly number[], held: number, cut = Number.POSITIVE_INFINITY) {
  const payloads = [chunk({ role: "assistant", content: "" }, [])];
  const said = { reasoning: "", content: "" };
  const given = { reasoning: 0, content: 0 };
  let at = 0;
  for (let turn = 0; at < tokens.length; turn += 1) {
    const some = tokens.slice(at, at + (sizes[turn % sizes.length] ?? 1));
    const entries = some.map((token, index) => entry(token.part ? "" : token.text, -(at + index)));
    at += some.length;
    for (const token of some) if (token.kind !== "hidden" && !token.part) said[token.kind] += token.text;
    const delta: Record<string, string> = {};
    for (const kind of ["reasoning", "content"] as const) {
      // Held back are characters, not halves of them.
      const whole = [...(kind === "content" ? said.content.slice(0, cut) : said.reasoning)];
      const until =
        at < tokens.length && kind === "content" ? Math.max(given[kind], whole.length - held) : whole.length;
      if (until > given[kind]) delta[kind] = whole.slice(given[kind], until).join("");
      given[kind] = Math.max(given[kind], until);
    }
    payloads.push(chunk(delta, entries));
  }
  return payloads;
}

const hidden = (text: string): Token => ({ text, kind: "hidden" });
const words = fc.array(fc.constantFrom(" a", "b", "You", " said", "\n", "\n\n", ".", " ä", "你好", "🦄"), {
  maxLength: 30,
});

/** Thoughts, an answer and the end, where a character of four bytes has three tokens. */
const answers = fc.tuple(words, words, fc.boolean()).map(([thoughts, answer, split]): Token[] => {
  const content = answer.flatMap((text): Token[] => {
    const whole: Token = { text, kind: "content" };
    const part: Token = { text, kind: "content", part: true };
    return split && text === "🦄" ? [part, part, whole] : [whole];
  });
  return [
    hidden("<think>"),
    ...thoughts.map((text): Token => ({ text, kind: "reasoning" })),
    hidden("</think>"),
    ...content,
    hidden("<|im_end|>"),
  ];
});

function expected(tokens: readonly Token[]) {
  return tokens.flatMap((token, index) =>
    token.kind === "content" ? [[token.part ? "" : token.text, -index] as const] : [],
  );
}

describe("logprobs of a chat model", () => {
  it("are those of the text's tokens, however tokens are put into chunks", () => {
    fc.assert(
      fc.property(
        answers,
        fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 5 }),
        (tokens, sizes) => {
          expect(tokensOf(sent(tokens, sizes, 0))).toEqual(expected(tokens));
        },
      ),
      { numRuns: 2_000 },
    );
  });

  it("are those of the text's tokens up to the one in which a stop string cuts it", () => {
    const sizes = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 5 });
    const stops = fc.constantFrom("a You", "said\n", "b", "\n\n", ".", " ä", "好🦄", "zzz");
    fc.assert(
      fc.property(answers, sizes, stops, (tokens, lengths, stop) => {
        const content = tokens.map((token) => (token.kind === "content" && !token.part ? token.text : "")).join("");
        const from = content.length - content.trimStart().length;
        const at = content.indexOf(stop, from);
        const shown = at < 0 ? content : content.slice(0, at);
        const payloads = sent(tokens, lengths, 0);
        expect(
          textsOf(payloads, stop)
            .map(({ text }) => text)
            .join(""),
        ).toBe(shown);
        let start = 0;
        const wanted = expected(tokens).filter(([text]) => {
          const isShown = start < shown.length;
          start += text.length;
          return isShown;
        });
        expect(tokensOf(payloads, stop)).toEqual(wanted);
      }),
      { numRuns: 2_000 },
    );
  });

  it("come with the text in which their first byte is shown", () => {
    const payloads = [
      ...["You", " said", ":", " alpha"].map((token, index) => chunk({}, [entry(token, -index)])),
      chunk({ content: "Yo" }, [entry(" beta", -4)]),
      chunk({ content: "u said" }, [entry(" gamma", -5)]),
      chunk({ content: ": alpha beta gamma" }, [entry("<|im_end|>", -6)]),
    ];
    expect(textsOf(payloads).map(({ text, logprobs = [] }) => [text, logprobs.map(({ token }) => token)])).toEqual([
      ["Yo", ["You"]],
      ["u said", [" said"]],
      [": alpha beta gamma", [":", " alpha", " beta", " gamma"]],
    ]);
  });

  it("leave out a call and its syntax between two texts", () => {
    const payloads = [
      chunk({ content: "Look" }, [entry("Look", -1)]),
      chunk({}, [entry("<tool_call>", -2), entry("\n", -3)]),
      chunk({ tool_calls: [{ index: 0, id: "c", function: { name: "f" } }] }, [entry("f", -4)]),
      chunk({ tool_calls: [{ index: 0, function: { arguments: "{}" } }] }, [entry("{}", -5)]),
      chunk({}, [entry("\n", -6), entry("</tool_call>", -7)]),
      chunk({ content: "\n" }, [entry("\n", -8)]),
      chunk({ content: "Done" }, [entry("Done", -9)]),
    ];
    expect(tokensOf(payloads)).toEqual([
      ["Look", -1],
      ["\n", -8],
      ["Done", -9],
    ]);
  });

  it("are given for tokens that are decoded without the space before them, or as U+FFFD", () => {
    expect(tokensOf([chunk({ content: "Hi there" }, [entry("Hi", -1), entry("there", -2)])])).toEqual([
      ["Hi", -1],
      ["there", -2],
    ]);
    const parts = [entry("a", -1), entry("\uFFFD", -2), entry("\uFFFD", -3), entry("b", -4)];
    expect(tokensOf([chunk({ content: "a🦄b" }, parts)]).map(([, logprob]) => logprob)).toEqual([-1, -2, -3, -4]);
  });
});
