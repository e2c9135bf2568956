import { createSimulator, type Simulator } from "../../dev/simulator/handler.ts";
import { harmonyTokenizer, readLiterals, type Segment } from "../../dev/simulator/harmony-tokenizer.ts";
import type { JsonObject } from "../../dev/simulator/json.ts";
import { chunks, events, list, object, post } from "./support.ts";

export const MODEL = "simulator-gpt-oss";

export const SYSTEM =
  "<|start|>system<|message|>You are ChatGPT.\n\nReasoning: low\n\n# Valid channels: analysis, commentary, final.<|end|>";

/** A prompt as text: a conversation that waits for the assistant. */
export function prompt(...messages: string[]): string {
  return `${messages.join("")}<|start|>assistant`;
}

export function user(text: string): string {
  return `<|start|>user<|message|>${text}<|end|>`;
}

export function developer(text: string): string {
  return `<|start|>developer<|message|>${text}<|end|>`;
}

/** A developer message with function tools, as openai/harmony renders it. */
export function functions(...declarations: string[]): string {
  const block = declarations.map((declaration) => `// A tool.\n${declaration}\n\n`).join("");
  return developer(`# Tools\n\n## functions\n\nnamespace functions {\n\n${block}} // namespace functions`);
}

export function call(name: string): string {
  return `<|start|>assistant to=functions.${name}<|channel|>commentary <|constrain|>json<|message|>{}<|call|>`;
}

export function result(name: string, output: string): string {
  return `<|start|>${name} to=assistant<|channel|>commentary<|message|>${output}<|end|>`;
}

export async function encode(text: string): Promise<number[]> {
  return (await harmonyTokenizer()).encode(text);
}

export async function encodeSegments(segments: Segment[]): Promise<number[]> {
  return (await harmonyTokenizer()).encodeSegments(segments);
}

export { readLiterals };

/** One completion that is not streamed, with special tokens and without a limit. */
export async function complete(body: JsonObject, simulator: Simulator = createSimulator()): Promise<JsonObject> {
  const response = await simulator.fetch(post("/v1/completions", { ...DEFAULTS, ...body }));
  return object(await response.json());
}

export async function choice(body: JsonObject): Promise<JsonObject> {
  const answer = await complete(body);
  if (answer.choices === undefined) throw new Error(JSON.stringify(answer));
  return object(list(answer.choices)[0]);
}

export async function text(body: JsonObject): Promise<string> {
  return String((await choice(body)).text);
}

/** The choices of a streamed completion, one per event. */
export async function streamed(body: JsonObject): Promise<JsonObject[]> {
  const response = await createSimulator().fetch(post("/v1/completions", { ...DEFAULTS, stream: true, ...body }));
  return chunks(events(await response.text())).map((chunk) => object(list(chunk.choices)[0]));
}

const DEFAULTS = { model: MODEL, max_tokens: 100_000, skip_special_tokens: false, return_token_ids: true };
