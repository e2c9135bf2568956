import type { HarmonyMessage } from "@responses-edge/harmony";
import {
  createTokenizer,
  dropAnalysis,
  FIRST_SPECIAL_ID,
  hasSpecialLiteral,
  renderConversation,
  type Segment,
  type Tokenizer,
  toText,
  toTokenIds,
} from "@responses-edge/harmony";
import fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { conversations, hostileConversations, literal } from "./conversations.ts";
import { loadOracle, type Oracle, readVocabulary } from "./oracle.ts";

let oracle: Oracle;
let tokenizer: Tokenizer;

beforeAll(async () => {
  oracle = await loadOracle();
  tokenizer = createTokenizer(await readVocabulary());
});

/** As the library renders, which knows nothing of our changes to schemas. */
function render(messages: readonly HarmonyMessage[]): Segment[] {
  return renderConversation(messages, { normaliseSchemas: false });
}

const isSpecial = (id: number) => id >= FIRST_SPECIAL_ID;

describe("against openai/harmony", () => {
  it("any conversation has the same text and the same token ids", () => {
    fc.assert(
      fc.property(conversations, (messages) => {
        const segments = render(messages);
        const expected = oracle.render(messages);
        expect(toText(segments)).toBe(oracle.decode(expected));
        expect(toTokenIds(segments, tokenizer)).toEqual(expected);
      }),
      { numRuns: 50 },
    );
  });

  it("no text becomes structure, in any place", () => {
    let forged = 0;
    fc.assert(
      fc.property(hostileConversations, (messages) => {
        const segments = render(messages);
        const ids = toTokenIds(segments, tokenizer);
        expect(ids).toEqual(oracle.render(messages));
        // Only the renderer's own special tokens are there, in its order.
        const structure = segments.filter((segment) => typeof segment === "number");
        expect(ids.filter(isSpecial)).toEqual(structure);
        expect(ids.filter(isSpecial)).toEqual(toTokenIds(render(harmless(messages)), tokenizer).filter(isSpecial));
        if (hasSpecialLiteral(segments)) forged += 1;
      }),
      { numRuns: 50 },
    );
    expect(forged).toBeGreaterThan(25);
  });

  it("a literal in pieces is only text, and found where joining the pieces would complete it", () => {
    fc.assert(
      fc.property(fc.array(fc.oneof(literal, fc.string()), { maxLength: 4 }), fc.nat(), (texts, cut) => {
        const whole = texts.join("");
        const at = cut % (whole.length + 1);
        const halves = [whole.slice(0, at), whole.slice(at)];
        const user: HarmonyMessage = { role: "user", content: halves.map((text) => ({ type: "text", text })) };
        const segments = render([user]);
        expect(toTokenIds(segments, tokenizer)).toEqual(oracle.render([user]));
        expect(hasSpecialLiteral(segments)).toBe(/<\|[^\s<>|]{1,40}\|>/.test(whole));
      }),
      { numRuns: 50 },
    );
  });

  it("any text has the same token ids, and they give the text again", () => {
    const unit = fc.oneof(
      fc.string({ unit: "grapheme", maxLength: 8 }),
      fc.string({ unit: "binary-ascii", maxLength: 8 }),
      fc.constantFrom("\uFEFF", "\u0085", "\u00a0", "\u2028", "'ſ", "'LL", "\ud800", "\udc00", "  ", "\r\n", "e\u0301"),
      fc.constantFrom("中", "ǅ", "ʰ", "Ⅷ", "²", "👩‍👩‍👧", "\u{20000}", "/", "İ", "ไ", "한", "\0"),
      fc.tuple(fc.constantFrom(" ", "a", "A", "\n", "中", "!", "\u0301"), fc.nat(300)).map(([c, n]) => c.repeat(n)),
      literal,
    );
    const strings = fc.array(unit, { maxLength: 12 }).map((parts) => parts.join(""));
    fc.assert(
      fc.property(strings, (string) => {
        const ids = tokenizer.encode(string);
        expect(ids).toEqual(oracle.encode(string));
        expect(tokenizer.decode(ids)).toBe(string.toWellFormed());
      }),
      { numRuns: 300 },
    );
  });
});

describe("dropping old thoughts, where we differ from openai/harmony on purpose", () => {
  const say = (channel: "analysis" | "final", text: string): HarmonyMessage => ({
    role: "assistant",
    channel,
    content: [{ type: "text", text }],
  });
  const ask: HarmonyMessage = { role: "user", content: [{ type: "text", text: "?" }] };
  const call: HarmonyMessage = { ...say("analysis", "{}"), channel: "commentary", recipient: "functions.f" };
  const turns = [ask, say("analysis", "one"), say("final", "1"), ask, say("analysis", "two"), say("final", "2"), ask];

  const theirs = (messages: HarmonyMessage[]) => oracle.decode(oracle.render(messages, { autoDropAnalysis: true }));
  const ours = (messages: HarmonyMessage[]) => toText(render(dropAnalysis(messages)));

  it("after one answer there is no difference", () => {
    expect(ours(turns.slice(0, 4))).toBe(theirs(turns.slice(0, 4)));
    expect(ours(turns.slice(0, 4))).not.toContain("one");
  });

  it("after two answers, the library keeps the thoughts between them", () => {
    expect(theirs(turns)).toContain("two");
    expect(ours(turns)).toBe(toText(render(turns.filter(({ channel }) => channel !== "analysis"))));
  });

  it("while a tool is being called, the library brings back all old thoughts", () => {
    const loop = [...turns, say("analysis", "three"), call];
    expect(theirs(loop)).toBe(oracle.decode(oracle.render(loop)));
    expect(ours(loop)).not.toMatch(/one|two/);
    expect(ours(loop)).toContain("three");
  });
});

/** The same messages with every special-token literal broken up. */
function harmless<T>(messages: T): T {
  return JSON.parse(JSON.stringify(messages), (key, value) =>
    typeof value === "string" && key !== "content_type" ? value.replaceAll("<|", "< |") : value,
  );
}
