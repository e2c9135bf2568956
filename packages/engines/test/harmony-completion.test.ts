import { Completion } from "@responses-edge/engines/harmony/completion";
import { createRequest } from "@responses-edge/responses-api/create-bodies";
import { parse } from "@responses-edge/responses-api/validation-errors";
import type { ModelDelta, Prompt } from "@responses-edge/turn/contract/engine";
import { expect, it } from "vitest";

const CHANNEL = 200005;
const MESSAGE = 200008;
const bytes = (text: string) => new TextEncoder().encode(text);
/** The unicorn has three tokens. */
const TOKENS = [bytes("final"), bytes("Hi "), ...[[0xf0, 0x9f], [0xa6], [0x84]].map((each) => Uint8Array.from(each))];
const tokenizer = { bytes: (id: number) => TOKENS[id] ?? bytes("") };

it.each([
  [2, "Hi "],
  [3, "Hi "],
  [4, "Hi "],
  [5, "Hi 🦄"],
])("an output that is broken off after %i tokens of text has no half character: %j", async (count, text) => {
  const request = parse(createRequest, { model: "gpt-oss", input: "Hello!", max_output_tokens: 16 });
  const prompt = { model: "gpt-oss", request, items: [], spentTokens: 16 } as unknown as Prompt;
  const completion = new Completion(prompt, { written: new Map(), namespaced: new Map() } as never, []);
  const ids = [CHANNEL, 0, MESSAGE, ...[1, 2, 3, 4].slice(0, count - 1)];
  await completion.goOnAfter({ ids }, async () => tokenizer as never);
  const deltas: ModelDelta[] = [];
  completion.end(deltas, 10);
  expect(deltas).toMatchObject([
    { kind: "message", message: { channel: "final", content: [{ type: "text", text }] } },
    { kind: "finish", reason: "length" },
    { kind: "usage", usage: { output_tokens: ids.length, total_tokens: 10 } },
  ]);
});
