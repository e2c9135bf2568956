import { expect, it } from "vitest";
import { endpoints } from "../../src/http/endpoints.ts";
import { describeApi } from "../../src/http/openapi/document.ts";

it("each operation has an id of its own", () => {
  const ids = endpoints.map(({ operation }) => operation.id);
  expect(ids.filter((id, index) => ids.indexOf(id) < index)).toEqual([]);
});

it("is the same whenever it is made: its components' names and order are those of the code", () => {
  expect(JSON.stringify(describeApi(endpoints))).toBe(JSON.stringify(describeApi(endpoints)));
});

it("says each schema once: what has a name is referred to by it", () => {
  const { components } = describeApi(endpoints) as { components: { schemas: Record<string, unknown> } };
  const places = new Map<string, string[]>();
  const visit = (node: unknown, at: string): void => {
    if (typeof node !== "object" || node === null) return;
    const text = JSON.stringify(node);
    // What is shorter is quicker read than looked up.
    if (text.length > 900) places.set(text, [...(places.get(text) ?? []), at]);
    for (const [key, child] of Object.entries(node)) visit(child, `${at}.${key}`);
  };
  for (const [name, schema] of Object.entries(components.schemas)) visit(schema, name);
  expect([...places.values()].filter((at) => at.length > 1)).toEqual([]);
});
