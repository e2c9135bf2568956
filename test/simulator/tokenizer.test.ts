import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createSimulator } from "../../dev/simulator/handler.ts";
import { splitTokens, Vocabulary } from "../../dev/simulator/tokenizer.ts";
import { codePoint } from "../code-points.ts";
import { object, post } from "./support.ts";

describe("tokens", () => {
  test("join to the same text, for any text", () => {
    const units = fc.string({ unit: codePoint, maxLength: 200 });
    const special = fc.constantFrom(
      "<|start|>",
      "<|end|>",
      " ",
      "\n",
      "\r\n",
      "<",
      "word",
      "\ud800",
      "\udc00",
      "日本",
      "👩‍👩‍👧",
      "é",
    );
    const mixed = fc.array(special, { maxLength: 40 }).map((parts) => parts.join(""));
    fc.assert(
      fc.property(fc.oneof(units, mixed), (text) => {
        expect(splitTokens(text).join("")).toBe(text);
        const vocabulary = new Vocabulary();
        expect(vocabulary.decode(vocabulary.encode(text))).toBe(text);
      }),
      { numRuns: 300 },
    );
  });

  test("are words with their space, punctuation and line breaks", () => {
    expect(splitTokens('You said: "hi there"\n{"a":1}')).toEqual([
      "You",
      " said",
      ":",
      ' "',
      "hi",
      " there",
      '"',
      "\n",
      '{"',
      "a",
      '":',
      "1",
      "}",
    ]);
  });

  test("have distinct ids that two simulators agree on", () => {
    const [one, two] = [new Vocabulary(), new Vocabulary()];
    const words = Array.from({ length: 5000 }, (_, index) => `word${index}`);
    expect(new Set(words.map((word) => one.id(word))).size).toBe(words.length);
    expect(two.encode("a word of it")).toEqual(one.encode("a word of it"));
  });

  test("of Harmony have their own ids, also inside text", () => {
    expect(new Vocabulary().encode("<|start|>user <|message|><|end|>").filter((id) => id >= 200_000)).toEqual([
      200006, 200008, 200007,
    ]);
  });

  test("/tokenize and /detokenize are inverse, for a prompt and for messages", async () => {
    const simulator = createSimulator();
    const answer = async (path: string, body: unknown) =>
      object(await (await simulator.fetch(post(path, body))).json());
    const prompt = await answer("/tokenize", { prompt: "a b\nc<|end|>" });
    expect(prompt).toEqual({ count: 5, max_model_len: 131072, tokens: expect.any(Array), token_strs: null });
    expect(await answer("/detokenize", { tokens: prompt.tokens })).toEqual({ prompt: "a b\nc<|end|>" });
    const messages = await answer("/tokenize", {
      messages: [{ role: "user", content: "hi" }],
      return_token_strs: true,
    });
    expect(messages.token_strs).toEqual(expect.arrayContaining(["user", "hi", "assistant"]));
  });
});
