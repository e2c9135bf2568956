/**
 * vLLM's own Responses API for peers that forward to it: it returns the answer of a chat completion in the form of
 * vLLM's Responses API. Each delta has an event, and an HTTP chunk has as many events as the original had deltas.
 */

interface ChatChunk {
  choices: { delta?: { content?: string | null } }[];
}

const CREATED_AT = 1_763_700_000;
/** The last part of its ids. */
export const RECORDED_ID = "00bench00";

const ITEM = `msg_${RECORDED_ID}`;

const encoder = new TextEncoder();

/** `chunks` are the HTTP chunks of the streamed chat completion. */
export function responsesChunks(chunks: readonly string[], model: string): Uint8Array[] {
  let sequence_number = 0;
  const event = (type: string, fields: object) =>
    `event: ${type}\ndata: ${JSON.stringify({ type, sequence_number: sequence_number++, ...fields })}\n\n`;
  const place = { item_id: ITEM, output_index: 0, content_index: 0 };
  const item = { id: ITEM, type: "message", role: "assistant" };
  const deltas = chunks.map(deltasIn).filter((some) => some.length > 0);
  const text = deltas.flat().join("");
  const begin = { response: responsesBody("", model, "in_progress") };
  const head =
    event("response.created", begin) +
    event("response.in_progress", begin) +
    event("response.output_item.added", { output_index: 0, item: { ...item, status: "in_progress", content: [] } }) +
    event("response.content_part.added", { ...place, part: part("") });
  const bodies = deltas.map((some) =>
    some.map((delta) => event("response.output_text.delta", { ...place, delta, logprobs: [] })).join(""),
  );
  const end =
    event("response.output_text.done", { ...place, text, logprobs: [] }) +
    event("response.content_part.done", { ...place, part: part(text) }) +
    event("response.output_item.done", {
      output_index: 0,
      item: { ...item, status: "completed", content: [part(text)] },
    }) +
    event("response.completed", { response: responsesBody(text, model, "completed") });
  return [head, ...bodies, end].map((body) => encoder.encode(body));
}

/** The response as an object. */
export function responsesBody(text: string, model: string, status: "in_progress" | "completed"): object {
  const isWhole = status === "completed";
  const content = [part(text)];
  const tokens = text.split(" ").length;
  const details = { input_tokens_details: { cached_tokens: 0 }, output_tokens_details: { reasoning_tokens: 0 } };
  return {
    id: `resp_${RECORDED_ID}`,
    object: "response",
    created_at: CREATED_AT,
    status,
    model,
    output: isWhole ? [{ id: ITEM, type: "message", role: "assistant", status: "completed", content }] : [],
    usage: isWhole ? { input_tokens: 10, output_tokens: tokens, total_tokens: 10 + tokens, ...details } : null,
    instructions: null,
    metadata: {},
    parallel_tool_calls: true,
    temperature: 1,
    tool_choice: "auto",
    tools: [],
    top_p: 1,
    background: false,
    max_output_tokens: 131_000,
    previous_response_id: null,
    reasoning: null,
    service_tier: "auto",
    text: null,
    truncation: "disabled",
    error: null,
    incomplete_details: null,
    user: null,
  };
}

function part(text: string): object {
  return { type: "output_text", text, annotations: [], logprobs: null };
}

function deltasIn(chunk: string): string[] {
  return chunk
    .split("\n")
    .filter((line) => line.startsWith("data: {"))
    .flatMap((line) => (JSON.parse(line.slice(6)) as ChatChunk).choices)
    .flatMap(({ delta }) => (delta?.content ? [delta.content] : []));
}
