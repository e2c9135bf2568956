import { expect, it } from "vitest";
import { endpoints } from "../../src/http/endpoints.ts";
import { describeApi } from "../../src/http/openapi/document.ts";

it("each operation has an id of its own", () => {
  const ids = endpoints.map(({ operation }) => operation.id);
  expect(ids.filter((id, index) => ids.indexOf(id) < index)).toEqual([]);
});

it("is always the same: its components' names and order are those of the code", () => {
  expect(JSON.stringify(describeApi(endpoints))).toBe(JSON.stringify(describeApi(endpoints)));
});

it("avoids constructs on which generators of clients fail", () => {
  const faults: string[] = [];
  const visit = (node: unknown, at: string): void => {
    if (typeof node !== "object" || node === null) return;
    const { content, responses, anyOf, type, ...schema } = node as Record<string, unknown>;
    if (content && Object.keys(content).includes("text/event-stream") && Object.keys(content).length > 1) {
      const schemas = new Set(Object.values(content).map((media) => JSON.stringify(media)));
      if (schemas.size > 1) faults.push(`${at}: an answer of one type or another`);
    }
    if (responses && Object.keys(responses).some((status) => /X/.test(status)))
      faults.push(`${at}: a range of statuses`);
    if (type === "boolean" && "const" in schema) faults.push(`${at}: a constant that is no text`);
    if (type === "null" && !/\.(any|one)Of\.\d+$/.test(at)) faults.push(`${at}: null alone`);
    if (Array.isArray(anyOf) && anyOf.some((each) => "anyOf" in each)) faults.push(`${at}: a union in a union`);
    for (const [key, child] of Object.entries(node)) visit(child, `${at}.${key}`);
  };
  visit(describeApi(endpoints), "");
  expect(faults).toEqual([]);
});

it("has each schema once: named schemas are references", () => {
  const { components } = describeApi(endpoints) as { components: { schemas: Record<string, unknown> } };
  const places = new Map<string, string[]>();
  const visit = (node: unknown, at: string): void => {
    if (typeof node !== "object" || node === null) return;
    const text = JSON.stringify(node);
    // A shorter schema is easier to read in place.
    if (text.length > 900) places.set(text, [...(places.get(text) ?? []), at]);
    for (const [key, child] of Object.entries(node)) visit(child, `${at}.${key}`);
  };
  for (const [name, schema] of Object.entries(components.schemas)) visit(schema, name);
  expect([...places.values()].filter((at) => at.length > 1)).toEqual([]);
});
