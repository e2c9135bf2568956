import { describe, expect, it } from "vitest";
import type { History } from "../../src/store/home/history.ts";
import { KnownConversation } from "../../src/store/home/known-conversation.ts";

/** A home's cache of its conversation. */

const LONG = "x".repeat(20_000);
const unread = (): never => {
  throw new Error("read");
};
const turn = (text: string) => ({
  input: JSON.stringify([text]),
  output: JSON.stringify([`${text}!`]),
  messages: null,
});

function knowing(history: History, upTo: number): KnownConversation {
  const known = new KnownConversation();
  expect(known.lastPosition(() => upTo)).toBe(upTo);
  expect(known.history(upTo, () => history)).toEqual(history);
  return known;
}

describe("a conversation in memory", () => {
  const history = { items: JSON.stringify([LONG]), messages: '[{"raw":1}]' };

  it("grows with each turn that is written, and is not read again", () => {
    const known = knowing(history, 3);
    known.add(turn("four"), 4);
    known.add({ ...turn("five"), messages: '[{"raw":2}]' }, 5);
    expect(known.lastPosition(unread)).toBe(5);
    expect(known.history(5, unread)).toEqual({
      items: JSON.stringify([LONG, "four", "four!", "five", "five!"]),
      messages: '[{"raw":1},{"raw":2}]',
    });
  });

  it("is read again if it was short, at another position, or after a turn out of order", () => {
    const short = { items: '["a"]', messages: "[]" };
    expect(() => knowing(short, 1).history(1, unread)).toThrow("read");
    expect(() => knowing(history, 3).history(2, unread)).toThrow("read");
    const known = knowing(history, 3);
    known.add(turn("seven"), 7);
    expect(known.lastPosition(unread)).toBe(7);
    expect(() => known.history(7, unread)).toThrow("read");
  });

  it("is dropped when rows are deleted", () => {
    const known = knowing(history, 3);
    known.forget();
    expect(() => known.lastPosition(unread)).toThrow("read");
    expect(() => known.history(3, unread)).toThrow("read");
  });
});
