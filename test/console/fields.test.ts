import { expect, it } from "vitest";

/** The values of forms, by the page's own module. */

type Form = readonly object[];
type Values = Record<string, unknown>;
const moduleOf = (name: string) => new URL(`../../packages/console/src/${name}.ts`, import.meta.url).href;
const { valuesIn } = (await import(moduleOf("fields"))) as { valuesIn: (form: Form, data: FormData) => Values };
const { valuesInWords } = (await import(moduleOf("fields-in-words"))) as {
  valuesInWords: (form: Form, values: Values) => string;
};

const FORM = [
  { name: "name", label: "Name" },
  { name: "budget.usd", label: "Budget", kind: "number", step: "any" },
  { name: "models", label: "Models", kind: "list" },
  { title: "More", fields: [{ name: "store", label: "Store nothing", kind: "check" }] },
  { name: "from", label: "From", kind: "time" },
  { name: "others", label: "Others", kind: "others" },
];

function filled(texts: Record<string, string>): FormData {
  const data = new FormData();
  for (const [name, text] of Object.entries(texts)) data.set(name, text);
  return data;
}

it("are numbers, lists and inner objects by their fields, those of folded fields and of JSON too; empty fields have none", () => {
  const from = new Date("2026-11-30T05:30:00Z");
  const local = new Date(from.getTime() - from.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
  const data = filled({
    name: "  ",
    "budget.usd": "2.5",
    models: "a, b,",
    store: "on",
    from: local,
    others: '{"tier": "gold"}',
  });
  const values = valuesIn(FORM, data);
  expect(values).toEqual({
    budget: { usd: 2.5 },
    models: ["a", "b"],
    store: true,
    from: "2026-11-30T05:30:00Z",
    tier: "gold",
  });
  expect(valuesInWords(FORM, { ...values, from: undefined })).toBe(
    "Budget: 2.5 · Models: a, b · Store nothing · tier: gold",
  );
});

it("name the field whose JSON cannot be read", () => {
  expect(() => valuesIn(FORM, filled({ others: "{" }))).toThrow(/^Others: this is no JSON/);
  expect(() => valuesIn(FORM, filled({ others: "[1]" }))).toThrow("Others: this is not a JSON object.");
});
