import { contextLengthExceeded } from "@responses-edge/responses-api/errors";
import { estimateTokens } from "@responses-edge/responses-api/estimate";
import { partsOf } from "@responses-edge/responses-api/items/registry";
import type { ModelDelta, Prompt } from "@responses-edge/turn/contract/engine";

/**
 * An answer of a server that truncates prompts silently. Throws the 400 `context_length_exceeded` if it has read less
 * than half of the estimated tokens of the messages; more may be a text of long tokens. A chat template may leave out
 * reasoning and tools, and the tokens of media are unknown.
 */
export async function* ofWholePrompt(
  prompt: Prompt,
  answer: AsyncIterable<ModelDelta[]>,
): AsyncGenerator<ModelDelta[]> {
  for await (const deltas of answer) {
    const told = deltas.find((delta) => delta.kind === "usage");
    const read = told?.usage.input_tokens ?? 0;
    const parts = prompt.items.flatMap((item) => (item.type === "message" ? partsOf(item).parts : []));
    const hasMedia = parts.some(({ type }) => /image|audio|video/.test(type));
    const texts = parts.map((part) => ("text" in part ? part.text : ""));
    if (read > 0 && !hasMedia && 2 * read < estimateTokens(texts.join(""))) {
      throw contextLengthExceeded(`The model server has cut the prompt to ${read} tokens before its answer.`);
    }
    yield deltas;
  }
}

/** An answer that fails when it is read. */
export function failing(error: unknown): AsyncIterable<ModelDelta[]> {
  return { [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(error) }) };
}
