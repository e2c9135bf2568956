import { ApiError } from "@responses-edge/responses-api/errors";
import { isJsonObject } from "@responses-edge/responses-api/json";
import type { ModelDelta, RawMessage } from "@responses-edge/turn/contract/engine";
import type { BodyFor, Upstream } from "../upstream.ts";
import { malformedAnswer } from "../upstream-faults.ts";

/** Token ids and their texts, by vLLM's `/tokenize` and `/detokenize` (`enable_response_messages`). */

/** Ends an answer with all of its tokens as one raw message, as vLLM's own `output_messages` has it. */
export async function* withRawMessage(
  upstream: Upstream,
  answer: AsyncIterable<ModelDelta[]>,
  model: string,
  signal: AbortSignal,
): AsyncGenerator<ModelDelta[]> {
  const ids: number[] = [];
  for await (const deltas of answer) {
    for (const delta of deltas) {
      if (delta.kind === "sampled" && "ids" in delta.sampled) for (const id of delta.sampled.ids) ids.push(id);
    }
    yield deltas.filter((delta) => delta.kind !== "sampled");
  }
  const message = await rawMessage(upstream, model, ids, signal).catch((error: unknown): RawMessage => {
    if (signal.aborted) throw error;
    // The answer itself is complete.
    return { type: "raw_message_tokens", message: "", tokens: ids };
  });
  yield [{ kind: "message", index: 0, message }];
}

/** Tokens with their text. Throws as `rawTokens` does. */
export async function rawMessage(
  upstream: Upstream,
  model: string,
  tokens: number[],
  signal: AbortSignal,
): Promise<RawMessage> {
  return { type: "raw_message_tokens", message: await textOfTokens(upstream, model, tokens, signal), tokens };
}

/** The text of tokens. Throws as `rawTokens` does. */
export async function textOfTokens(
  upstream: Upstream,
  model: string,
  tokens: readonly number[],
  signal: AbortSignal,
): Promise<string> {
  const text = await rawTokens(upstream, "//detokenize", signal, JSON.stringify({ model, tokens }));
  if (!isJsonObject(text) || typeof text.prompt !== "string") throw malformedAnswer();
  return text.prompt;
}

/** The answer of a route for tokens. Throws the 502 of a server without the route. */
export async function rawTokens(
  upstream: Upstream,
  path: string,
  signal: AbortSignal,
  body: BodyFor,
): Promise<unknown> {
  try {
    return await upstream.json(path, signal, body);
  } catch (error) {
    // For example a proxy in front of vLLM that hides these routes.
    if (!(error instanceof ApiError) || error.code !== "upstream_error") throw error;
    throw new ApiError({
      status: 502,
      message: "'enable_response_messages' needs the model server's /tokenize and /detokenize routes.",
      code: "upstream_error",
    });
  }
}
