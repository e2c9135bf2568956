import type { Gateway } from "../e2e/support.ts";
import { eventually } from "../e2e/support.ts";

/** Another tenant's stream. The model outputs a word when the test asks for it. */
export interface HeldStream {
  /** Lets the model output a word, and waits until the client has it. */
  say(word: string): Promise<void>;
  /** Ends the answer. Returns the client's text and the response's end. */
  end(): Promise<{ text: string; last: string }>;
}

const PROMPT = "Say what you are told, when you are told.";

/** Starts a stream with a key of its tenant. */
export async function beginHeldStream(gateway: Gateway, apiKey: string): Promise<HeldStream> {
  const { simulator } = gateway.vllm;
  const answer = simulator.fetch.bind(simulator);
  let model: ReadableStreamDefaultController<Uint8Array> | undefined;
  simulator.fetch = async (request) => {
    const isHeld = request.url.endsWith("/chat/completions") && (await request.clone().text()).includes(PROMPT);
    if (!isHeld) return answer(request);
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        model = controller;
      },
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  };
  const send = (chunk: object) => {
    const data = { id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model: "simulator", ...chunk };
    model?.enqueue(new TextEncoder().encode(`data: ${JSON.stringify(data)}\n\n`));
  };
  const stream = gateway
    .client({ apiKey })
    .responses.create({ model: "simulator", input: PROMPT, stream: true, store: false });
  let text = "";
  let last = "";
  const read = (async () => {
    for await (const event of await stream) {
      if (event.type === "response.output_text.delta") text += event.delta;
      last = event.type;
    }
  })();
  await eventually(() => model !== undefined, 20_000);
  return {
    async say(word) {
      const before = text;
      send({ choices: [{ index: 0, delta: { content: word }, finish_reason: null }] });
      await eventually(() => text === before + word, 20_000);
    },
    async end() {
      send({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] });
      model?.enqueue(new TextEncoder().encode("data: [DONE]\n\n"));
      model?.close();
      await read;
      return { text, last };
    },
  };
}
