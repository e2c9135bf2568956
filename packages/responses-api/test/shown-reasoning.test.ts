import { shownHead, shownItems, withoutReasoning } from "@responses-edge/responses-api/items/reasoning";
import { describe, expect, it } from "vitest";

const content = [{ type: "reasoning_text", text: "secret" }];
const thought = { id: "rs_1", type: "reasoning", summary: [{ type: "summary_text", text: "secret" }], content };
const sealed = { ...thought, encrypted_content: "re1.k.x" };
const compaction = { type: "compaction", encrypted_content: "re1.k.y" };
const message = { type: "message", content: [{ type: "output_text", text: '"reasoning" "encrypted_content"' }] };

describe("what is stored", () => {
  it("is the same text where nothing is to be left out", () => {
    const json = JSON.stringify([sealed, compaction, message]);
    expect(shownItems(json, { hidden: false, encrypted: true })).toBe(json);
    const plain = JSON.stringify([thought, message]);
    expect(shownItems(plain, { hidden: false, encrypted: false })).toBe(plain);
    expect(shownHead(plain, { hidden: false, encrypted: false })).toBe(plain);
  });

  it("has encrypted content only on request; a compaction always has it", () => {
    const json = JSON.stringify([sealed, compaction]);
    expect(JSON.parse(shownItems(json, { hidden: false, encrypted: false }))).toEqual([thought, compaction]);
    expect(JSON.parse(shownItems(JSON.stringify(sealed), { hidden: false, encrypted: false }))).toEqual(thought);
  });

  it("has none of the reasoning that the operator hides", () => {
    const json = JSON.stringify([sealed, compaction, message]);
    const shown = shownItems(json, { hidden: true, encrypted: true });
    expect(JSON.parse(shown)).toEqual([
      { id: "rs_1", type: "reasoning", summary: [], encrypted_content: "re1.k.x" },
      compaction,
      message,
    ]);
    const head = { id: "resp_1", input_messages: ["secret"], output_messages: ["secret"] };
    expect(shownHead(JSON.stringify(head), { hidden: true, encrypted: false })).toBe('{"id":"resp_1"}');
  });
});

describe("a log from before the operator hid reasoning", () => {
  const without = (event: { type: string } & Record<string, unknown>) => {
    const json = withoutReasoning(event.type, JSON.stringify(event));
    return json === undefined ? undefined : (JSON.parse(json) as unknown);
  };

  it.each([
    [{ type: "response.reasoning_text.delta", delta: "secret" }],
    [{ type: "response.reasoning_summary_part.done", part: { type: "summary_text", text: "secret" } }],
    [{ type: "response.content_part.added", part: { type: "reasoning_text", text: "" } }],
  ])("says nothing of it: %j", (event) => {
    expect(without(event)).toBeUndefined();
  });

  it.each([
    [{ type: "response.output_item.done", sequence_number: 7, item: sealed }],
    [{ type: "response.completed", response: { output: [sealed, message], output_messages: ["secret"] } }],
    [{ type: "response.created", response: { output: [], input_messages: ["secret"], output_messages: [] } }],
  ])("says all else: %j", (event) => {
    const told = without(event);
    expect(told).toMatchObject({ type: event.type });
    expect(JSON.stringify(told)).not.toContain("secret");
    expect(JSON.stringify(told).includes("re1.k.x")).toBe(event.type !== "response.created");
  });

  it("keeps the bytes of events without it", () => {
    const json = '{"type":"response.output_text.delta", "delta":"a \\"reasoning_text\\""}';
    expect(withoutReasoning("response.output_text.delta", json)).toBe(json);
  });
});
