import { withFamilyIds, withOutputsAfterCalls } from "@responses-edge/engines/chat/call-messages";
import type { ChatMessage } from "@responses-edge/engines/chat/messages";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

const call = (id: string, name = "look") => ({ id, type: "function" as const, function: { name, arguments: "{}" } });
const calls = (...ids: string[]): ChatMessage => ({ role: "assistant", tool_calls: ids.map((id) => call(id)) });
const output = (id: string): ChatMessage => ({ role: "tool", tool_call_id: id, content: id });
const user = (content: string): ChatMessage => ({ role: "user", content });

describe("a user's message between a call and its output", () => {
  it("follows the output", () => {
    const given = [user("a"), calls("1", "2"), output("2"), user("b"), output("1"), user("c")];
    expect(withOutputsAfterCalls(given)).toEqual([
      ...[user("a"), calls("1", "2"), output("2"), output("1"), user("b"), user("c")],
    ]);
  });

  it("stays where the call has no output, or another call comes first", () => {
    const given = [calls("1"), user("b"), calls("2"), output("2"), output("1")];
    expect(withOutputsAfterCalls(given)).toEqual(given);
  });

  it("is the only thing that moves, and nothing is lost", () => {
    const message = fc.oneof(
      fc.constantFrom("1", "2", "3").map(output),
      fc.uniqueArray(fc.constantFrom("1", "2", "3"), { minLength: 1 }).map((ids) => calls(...ids)),
      fc.constantFrom("a", "b").map(user),
    );
    fc.assert(
      fc.property(fc.array(message), (given) => {
        const ordered = withOutputsAfterCalls(given);
        const sorted = (all: readonly ChatMessage[]) => all.map((each) => JSON.stringify(each)).sort();
        expect(sorted(ordered)).toEqual(sorted(given));
        const others = (all: readonly ChatMessage[]) => all.filter(({ role }) => role !== "tool");
        expect(others(ordered)).toEqual(others(given));
        expect(withOutputsAfterCalls(ordered)).toEqual(ordered);
      }),
    );
  });
});

describe("the ids of calls", () => {
  const given = [calls("call_abcdefgh", "a1B2c3D4e"), output("call_abcdefgh"), output("a1B2c3D4e"), calls("x")];
  const idsOf = (messages: readonly ChatMessage[]) =>
    messages.flatMap((message) =>
      message.role === "tool"
        ? [message.tool_call_id]
        : message.role === "assistant"
          ? (message.tool_calls ?? []).map(({ id }) => id)
          : [],
    );

  it("have nine letters and digits for Mistral, also those of clients", () => {
    const ids = idsOf(withFamilyIds(given, "mistralai/Devstral-Small"));
    expect(ids.every((id) => /^[A-Za-z0-9]{9}$/.test(id))).toBe(true);
    expect(ids[1]).toBe("a1B2c3D4e");
    expect([ids[2], ids[3]]).toEqual([ids[0], ids[1]]);
  });

  it("count the conversation's calls for Kimi", () => {
    const ids = idsOf(withFamilyIds(given, "moonshotai/Kimi-K2-Instruct"));
    expect(ids).toEqual([
      "functions.look:0",
      "functions.look:1",
      "functions.look:0",
      "functions.look:1",
      "functions.look:2",
    ]);
  });

  it("are the same in the next turn", () => {
    for (const model of ["Kimi-K2", "Mistral-Small", "Qwen3"]) {
      const next = withFamilyIds([...given, output("x"), user("And?"), calls("y")], model);
      expect(next.slice(0, given.length)).toEqual(withFamilyIds(given, model));
    }
  });

  it("stay as they are for other models", () => {
    expect(withFamilyIds(given, "Qwen/Qwen3-8B")).toBe(given);
  });
});
