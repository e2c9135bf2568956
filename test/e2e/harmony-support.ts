import type {
  FunctionTool,
  Response,
  ResponseFunctionToolCall,
  ResponseInputItem,
  ResponseOutputItem,
} from "openai/resources/responses/responses";
import { createSimulator } from "../../dev/simulator/handler.ts";
import { END, harmonyTokenizer, isSpecial, RETURN } from "../../dev/simulator/harmony-tokenizer.ts";
import { isObject, type JsonObject } from "../../dev/simulator/json.ts";
import { ConformanceError, violationsIn } from "../conformance/violations.ts";
import type { Gateway } from "./support.ts";

/** Helpers of gpt-oss's tests: the prompt that reached vLLM, as text and as token ids. */

export const GPT_OSS = "simulator-gpt-oss";

export { DATE } from "./support.ts";

/**
 * A model that outputs this text, malformed or not. `<|…|>` in it is that special token, `\<|…|>` text. There is one
 * script per round.
 */
export function saying(...scripts: string[]): string {
  // A model's name has a maximum length, so only a query's special characters are escaped.
  return `${GPT_OSS}?harmony=${scripts.join("\u001e").replaceAll(/[%&+#]/g, encodeURIComponent)}`;
}

/** The requests for a completion that reached "vLLM", oldest first. */
export function completions({ vllm }: Pick<Gateway, "vllm">) {
  return vllm.simulator.requests.flatMap(({ path, body, ...rest }) =>
    path === "/v1/completions" && isObject(body) ? [{ ...rest, body }] : [],
  );
}

/** The body of the last of them. */
export function lastCompletion(gateway: Pick<Gateway, "vllm">): JsonObject {
  const last = completions(gateway).at(-1);
  if (!last) throw new Error("No prompt reached vLLM.");
  return last.body;
}

/** The token ids of a request's prompt. In a text, literals of special tokens are such tokens. */
export async function idsOf({ prompt }: JsonObject): Promise<number[]> {
  if (typeof prompt === "string") return (await harmonyTokenizer()).encode(prompt);
  return prompt as number[];
}

export async function decode(ids: readonly number[]): Promise<string> {
  return (await harmonyTokenizer()).decode(ids);
}

/** The token ids of the last prompt. */
export async function lastPromptIds(gateway: Pick<Gateway, "vllm">): Promise<number[]> {
  return idsOf(lastCompletion(gateway));
}

/** The last prompt as text. Special tokens and their literals look the same. */
export async function lastCompletionPrompt(gateway: Pick<Gateway, "vllm">): Promise<string> {
  return decode(await lastPromptIds(gateway));
}

/** The messages of a prompt, each without `<|start|>`; the last is the beginning of the assistant's next one. */
export async function messagesOf(body: JsonObject): Promise<string[]> {
  const { prompt } = body;
  const text = typeof prompt === "string" ? prompt : await decode(await idsOf(body));
  return text.split("<|start|>").slice(1);
}

/** The messages of the last prompt. */
export async function lastMessages(gateway: Pick<Gateway, "vllm">): Promise<string[]> {
  return messagesOf(lastCompletion(gateway));
}

/** The messages of the last prompt after those of system and developer that begin it. */
export async function lastTurns(gateway: Pick<Gateway, "vllm">): Promise<string[]> {
  const messages = await lastMessages(gateway);
  const first = messages.findIndex((message) => !/^(system|developer)<\|message\|>/.test(message));
  return messages.slice(first, -1);
}

/** Special tokens among ids. */
export function specialsIn(ids: readonly number[]): number[] {
  return ids.filter(isSpecial);
}

/** The model's output for a request, token by token: the simulator generates the same again. */
export async function sampledIds(body: JsonObject): Promise<number[]> {
  const { stream_options, ...rest } = body;
  const answer = await createSimulator({ record: false }).fetch(
    new Request("http://vllm/v1/completions", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...rest, stream: false }),
    }),
  );
  const { choices } = (await answer.json()) as { choices: { token_ids: number[] }[] };
  return choices[0]?.token_ids ?? [];
}

/** The form of sampled tokens in a later prompt: `<|return|>` only ended the completion. */
export function asHistory(sampled: readonly number[]): number[] {
  return sampled.map((id) => (id === RETURN ? END : id));
}

export const getWeather: FunctionTool = {
  type: "function",
  name: "get_weather",
  description: "The weather in a city.",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  strict: false,
};
export const getTime: FunctionTool = {
  type: "function",
  name: "get_time",
  parameters: { type: "object" },
  strict: false,
};
export const tools = [getWeather, getTime];

export function callsOf({ output }: { output: readonly ResponseOutputItem[] }): ResponseFunctionToolCall[] {
  return output.filter((item) => item.type === "function_call");
}

export function onlyCall(response: Pick<Response, "output">): ResponseFunctionToolCall {
  const [call, ...more] = callsOf(response);
  if (!call || more.length > 0) throw new Error(`Expected one call, got ${JSON.stringify(response.output)}`);
  return call;
}

export function outputOf(call: ResponseFunctionToolCall, output = "sunny"): ResponseInputItem.FunctionCallOutput {
  return { type: "function_call_output", call_id: call.call_id, output };
}

/** The items that a client returns that keeps everything itself. They have no ids that lead to stored items. */
export function resent(items: readonly ResponseOutputItem[]): ResponseInputItem[] {
  return items.map(({ id: _, ...item }) => item as ResponseInputItem);
}

/** Does work that breaks a rule of the conformance checker, and checks that the checker finds only that. */
export async function tolerating<T>(
  { fetch }: Pick<Gateway, "fetch">,
  known: RegExp,
  action: () => Promise<T>,
): Promise<T> {
  await fetch.settled();
  const result = await action();
  const found = await fetch.settled().then(() => [], violationsIn);
  const others = found.filter((violation) => !known.test(violation));
  if (others.length > 0) throw new ConformanceError("What the server answered", others);
  return result;
}
