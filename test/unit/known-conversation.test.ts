import { describe, expect, it } from "vitest";
import type { History } from "../../src/store/home/history.ts";
import { KnownConversation } from "../../src/store/home/known-conversation.ts";

/** A home's cache of its conversation. */

const unread = (): never => {
  throw new Error("read");
};
const turn = (text: string, messages: string | null = null) => ({
  ...{ turn: text, parent: null, createdAt: 0, base: null, response: null },
  ...{ input: JSON.stringify([text]), output: JSON.stringify([`${text}!`]), messages },
});

function knowing(history: History, upTo: number): KnownConversation {
  const known = new KnownConversation();
  expect(known.lastPosition(() => upTo)).toBe(upTo);
  expect(known.history(upTo, () => history).texts).toEqual(history);
  return known;
}

describe("a conversation in memory", () => {
  const history = { items: '["three"]', messages: '[{"raw":1}]' };

  it("grows with each turn that is written, and is not read again", () => {
    const known = knowing(history, 3);
    known.add(turn("four"), 4);
    known.add(turn("five", '[{"raw":2}]'), 5);
    expect(known.lastPosition(unread)).toBe(5);
    expect(known.history(5, unread).texts).toEqual({
      items: JSON.stringify(["three", "four", "four!", "five", "five!"]),
      messages: '[{"raw":1},{"raw":2}]',
    });
  });

  it("is known from its first turn on, and each of its states has an id of its own", () => {
    const known = new KnownConversation();
    known.add(turn("one"), 1);
    const one = known.latest;
    known.add(turn("two"), 2);
    expect(known.latest?.values()).toMatchObject({ history: ["one", "one!", "two", "two!"], replays: [] });
    expect(one?.values().history).toEqual(["one", "one!"]);
    expect(known.latest?.id).not.toBe(one?.id);
    expect(knowing(history, 3).latest?.id).not.toBe(knowing(history, 3).latest?.id);
  });

  it("is read again if it is long, at another position, or after a turn out of order", () => {
    const long = { items: JSON.stringify(["x".repeat(2 * 1024 * 1024)]), messages: "[]" };
    expect(() => knowing(long, 1).history(1, unread)).toThrow("read");
    expect(() => knowing(history, 3).history(2, unread)).toThrow("read");
    const known = knowing(history, 3);
    known.add(turn("seven"), 7);
    expect(known.lastPosition(unread)).toBe(7);
    expect(known.latest).toBeUndefined();
    expect(() => known.history(7, unread)).toThrow("read");
  });

  it("is dropped when rows are deleted", () => {
    const known = knowing(history, 3);
    known.forget();
    expect(() => known.lastPosition(unread)).toThrow("read");
    expect(() => known.history(3, unread)).toThrow("read");
  });
});
