import { plainMessage } from "@responses-edge/responses-api/items/message";
import { ITEMS, inputItem } from "@responses-edge/responses-api/items/registry";
import fc from "fast-check";
import type { BetaResponseInputItem, BetaResponseOutputItem } from "openai/resources/beta/responses/responses";
import type { ResponseInputItem, ResponseItem, ResponseOutputItem } from "openai/resources/responses/responses";
import { expect, it } from "vitest";

type OpenAIItem =
  | ResponseInputItem
  | ResponseItem
  | ResponseOutputItem
  | BetaResponseInputItem
  | BetaResponseOutputItem;
type Unlisted = Exclude<OpenAIItem["type"], keyof typeof ITEMS | null | undefined>;

it("each item type of OpenAI's and of its beta is described", () => {
  // Does not compile while there is one more.
  const unlisted: Record<Unlisted, true> = {};
  expect(unlisted).toEqual({});
});

it("each item type has an id prefix of its own", () => {
  const prefixes = Object.values(ITEMS).flatMap((described) => ("prefix" in described ? described.prefix : []));
  expect(prefixes.toSorted()).toEqual([...new Set(prefixes)].toSorted());
});

const partType = fc.constantFrom<unknown>("input_text", "output_text", "refusal", "input_image", ["input_text"], null);
const part = fc.record({ type: partType, text: fc.constantFrom<unknown>("Hi", "", 1, null) }, { requiredKeys: [] });
const messageLike = fc.record(
  {
    type: fc.constantFrom<unknown>("message", null, "reasoning", ["message"], 1),
    role: fc.constantFrom<unknown>("user", "assistant", "system", "developer", "tool", null, ["user"]),
    content: fc.oneof(fc.constantFrom<unknown>("Hello.", "", null, 7), fc.array(fc.oneof(part, fc.constant(null)))),
    id: fc.constant("msg_1"),
    status: fc.constantFrom("completed", "incomplete"),
  },
  { requiredKeys: ["role", "content"] },
);

it("a message that is read without its schema equals the schema's result", () => {
  fc.assert(
    fc.property(messageLike, (value) => {
      const plain = plainMessage(value);
      if (plain !== undefined) expect(JSON.stringify(plain)).toBe(JSON.stringify(inputItem.parse(value)));
    }),
    { numRuns: 2_000 },
  );
});

it.each([
  [{ role: "user", content: "Hello." }],
  [{ type: "message", role: "developer", content: [{ type: "input_text", text: "Hello." }] }],
  [{ role: "assistant", content: [{ type: "output_text", text: "Hello." }] }],
])("%j is read without its schema", (value) => {
  expect(plainMessage(value)).toEqual(inputItem.parse(value));
});
