import { ITEMS, inputItem } from "@responses-edge/responses-api/items/registry";
import { parse } from "@responses-edge/responses-api/validation";
import type { BetaResponseInputItem, BetaResponseOutputItem } from "openai/resources/beta/responses/responses";
import type { ResponseInputItem, ResponseItem, ResponseOutputItem } from "openai/resources/responses/responses";
import { expect, it } from "vitest";

/** Item types of OpenAI's beta that no model here has a form for. */
const REFUSED = ["agent_message", "multi_agent_call", "multi_agent_call_output"] as const;

type OpenAIItem =
  | ResponseInputItem
  | ResponseItem
  | ResponseOutputItem
  | BetaResponseInputItem
  | BetaResponseOutputItem;
type Unlisted = Exclude<OpenAIItem["type"], keyof typeof ITEMS | (typeof REFUSED)[number] | null | undefined>;

it("each item type of OpenAI's is described or refused by its type", () => {
  // Does not compile while there is one more.
  const unlisted: Record<Unlisted, true> = {};
  expect(unlisted).toEqual({});
});

it.each(REFUSED)("an item of the type '%s' is refused by its type", (type) => {
  expect(() => parse(inputItem, { type, id: "a_1" })).toThrow(`Invalid value: '${type}' is not a supported 'type'.`);
});

it("each item type has an id prefix of its own", () => {
  const prefixes = Object.values(ITEMS).flatMap((described) => ("prefix" in described ? described.prefix : []));
  expect(prefixes.toSorted()).toEqual([...new Set(prefixes)].toSorted());
});
