import { Ajv2020 } from "ajv/dist/2020.js";
import { expect } from "vitest";
import { checkEventStream, parseEventStream } from "../conformance/event-stream.ts";
import type { Gateway } from "../e2e/support.ts";
import type { Speech } from "../vllm/speech.ts";

/** Answers in formats, and calls of the client's, whose model servers die after any of their characters. */

const SCHEMA = {
  type: "object",
  properties: {
    city: { type: "string", minLength: 2 },
    tags: { type: "array", items: { enum: ["new", "old"] }, minItems: 1 },
    place: {
      type: "object",
      properties: { open: { type: "boolean" }, since: { type: ["number", "null"] } },
      required: ["open"],
      additionalProperties: false,
    },
    // Some servers write the required properties first.
    'a "quoted" name': { type: "integer", minimum: 0 },
  },
  required: ["city", "tags", "place"],
  additionalProperties: false,
};
const CHOICES = ["left", "leftmost", "right"];
const REGEX = "[a-c]{3,8}-[0-9]{2}(x|yz)";
const EBNF = 'root ::= "say " word (", " word)*\nword ::= [a-z]+';
const LARK = 'start: "go " DIRECTION (" and " DIRECTION)* "."\nDIRECTION: "north" | "south" | "east"';

const FUNCTION = { type: "function", name: "visit", parameters: SCHEMA, strict: true } as const;
const CUSTOM = { type: "custom", name: "walk", format: { type: "grammar", syntax: "lark", definition: LARK } } as const;
const FREE = { type: "custom", name: "note" } as const;

const VALUE = JSON.stringify({
  city: 'Grüße, 🦜 aus "Rom"',
  tags: ["new", "old", "new"],
  place: { open: true, since: -1.5 },
  'a "quoted" name': 1204,
});
const INPUT = "go north and south and east and north.";

const isOfSchema = new Ajv2020({ strict: false, allowUnionTypes: true }).compile(SCHEMA);
const isOf = (json: string) => isOfSchema(JSON.parse(json));

/** A request whose answer is bound. */
export interface BoundRequest {
  kind: string;
  /** The simulator's model. */
  model: string;
  body: object;
  /** The type of the item that is bound. */
  type: "message" | "function_call" | "custom_tool_call";
  isValid: (text: string) => boolean;
  /** The words of a scripted model; the simulator answers with what the format allows. */
  speech: Speech;
}

const answers = [
  {
    kind: "a schema",
    body: { text: { format: { type: "json_schema", name: "s", schema: SCHEMA, strict: true } } },
    isValid: isOf,
    speech: { text: VALUE, bound: true },
  },
  {
    kind: "any JSON",
    body: { text: { format: { type: "json_object" } } },
    isValid: (text: string) => JSON.parse(text) !== null,
    speech: { text: VALUE, bound: true },
  },
  {
    kind: "a choice",
    body: { structured_outputs: { choice: CHOICES } },
    isValid: (text: string) => CHOICES.includes(text),
    speech: { text: "leftmost", bound: true },
  },
  {
    kind: "a pattern",
    body: { structured_outputs: { regex: REGEX } },
    isValid: (text: string) => new RegExp(`^(?:${REGEX})$`).test(text),
    speech: { text: "abcabcab-42yz", bound: true },
  },
  {
    kind: "EBNF",
    body: { structured_outputs: { grammar: EBNF } },
    isValid: (text: string) => /^say [a-z]+(, [a-z]+)*$/.test(text),
    speech: { text: "say one, two, three, four", bound: true },
  },
] as const;
const isOfLark = (text: string) => /^go (north|south|east)( and (north|south|east))*\.$/.test(text);
const calls = [
  {
    kind: "a function",
    body: { tools: [FUNCTION] },
    type: "function_call",
    isValid: isOf,
    speech: { calls: [{ name: "visit", arguments: VALUE }], bound: true },
  },
  {
    kind: "a required function",
    body: { tools: [FUNCTION], tool_choice: "required" },
    type: "function_call",
    isValid: isOf,
    speech: { calls: [{ name: "visit", arguments: VALUE }], bound: true },
  },
  {
    kind: "a custom tool with a grammar",
    body: { tools: [CUSTOM], tool_choice: "required" },
    type: "custom_tool_call",
    isValid: isOfLark,
    speech: { input: { name: "walk", text: INPUT, isForced: true } },
  },
  {
    kind: "a custom tool",
    body: { tools: [FREE] },
    type: "custom_tool_call",
    isValid: (text: string) => text.length > 0,
    speech: { input: { name: "note", text: 'Grüße,\n"🦜" \\ aus Rom' } },
  },
] as const;

/** Requests to both engines, for `BOUND_INPUT`. */
export const BOUND_REQUESTS: readonly BoundRequest[] = ["simulator", "simulator-gpt-oss"].flatMap((model) => [
  ...answers.map((answer) => ({ ...answer, model, type: "message" as const })),
  ...calls.map((call) => ({ ...call, model })),
]);

/** Names the tools. */
export const BOUND_INPUT = 'Use visit or note or walk: say "Grüße, 🦜" to Rome, please.';

/** The bound text of a stream's response, after the rules of every stream: each event once, its deltas those of the item. */
export function boundTextOf(text: string, { type, kind }: BoundRequest, isBackground = false): string {
  const { response } = checkEventStream(parseEventStream(text), { background: isBackground });
  expect([kind, response?.status, response?.error]).toEqual([kind, "completed", null]);
  // A server that dies after its finish reason has told no usage.
  if (response?.usage) expect(response.usage.output_tokens).toBeGreaterThan(0);
  const items = (response?.output ?? []).filter((item) => item.type !== "reasoning");
  expect(items.map((item) => item.type)).toEqual([type]);
  const [item] = items;
  if (item?.type === "function_call") return item.arguments;
  if (item?.type === "custom_tool_call") return item.input;
  const parts = item?.type === "message" ? item.content : [];
  return parts.map((part) => (part.type === "output_text" ? part.text : "")).join("");
}

/** Creates the response as a stream. `settings` are the simulator's. */
export async function streamOf(gateway: Gateway, request: BoundRequest, settings: string): Promise<string> {
  const model = `${request.model}?letters=1${settings === "" ? "" : `&${settings}`}`;
  const answer = await gateway.post({ ...request.body, model, input: BOUND_INPUT, stream: true });
  return answer.text();
}

/** More tokens than a call's markup, or a thought, takes before its first character. */
export const MARKUP = 120;

/** The number of characters with which two texts begin alike. */
export function alike(a: string, b: string): number {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length += 1;
  return length;
}
