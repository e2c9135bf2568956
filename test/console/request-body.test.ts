import { expect, it } from "vitest";

/** The body that the console makes of its form, by the page's own module. */

const module = new URL("../../packages/console/src/request-body.ts", import.meta.url).href;
const { bodyOf, emptyDraft } = (await import(module)) as {
  bodyOf: (draft: object) => Record<string, unknown>;
  emptyDraft: () => object;
};

it("a request of the form asks for the fields that its answer shows", () => {
  const includeOf = (more: object) => bodyOf({ ...emptyDraft(), ...more }).include;
  expect(includeOf({})).toBeUndefined();
  expect(includeOf({ hosted: ["web_search", "code_interpreter"], stores: ["vs_1"] })).toEqual([
    "file_search_call.results",
    "code_interpreter_call.outputs",
    "web_search_call.action.sources",
  ]);
});
