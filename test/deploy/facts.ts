import { createHash } from "node:crypto";
import OpenAI from "openai";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";

/** The facts about responses-edge in every form: from the package, as one file, in a container. */

/** A running server, in front of a simulated vLLM. */
export interface Running {
  /** `http://127.0.0.1:PORT`. */
  url: string;
  /** Sends SIGTERM and waits for the end. Returns the exit code. */
  stop(): Promise<number | null>;
}

/** Starts a server with these variables, on the same data each time. Resolves when it answers. */
export type Start = (variables: Record<string, string>) => Promise<Running>;

const KEY = "sk-deploy";

/** The server accepts KEY. */
const API_KEYS = `acme:${createHash("sha256").update(KEY).digest("hex")}`;

/** Adds the facts to the suite that calls it. */
export function itServes(start: Start): void {
  let vllm: SimulatorServer;
  let running: Running | undefined;
  beforeAll(async () => {
    vllm = await serveSimulator();
  });
  afterEach(async () => {
    await running?.stop();
    running = undefined;
  });
  afterAll(() => vllm?.close());
  const begin = async () => {
    running = await start({ VLLM_BASE_URL: `${vllm.url}/v1`, API_KEYS, MAX_OPEN_TURNS: "100" });
    return { running, openai: client(running, KEY) };
  };

  it("answers clients with a key, ends running requests when it stops, and has all data at the next start", async () => {
    const { running: first, openai } = await begin();
    await expect(client(first, "sk-other").responses.create({ model: "simulator", input: "Hello!" })).rejects.toThrow(
      /Incorrect API key/,
    );
    const stored = await openai.responses.create({ model: "simulator", input: "Hello!" });
    expect(stored.output_text).toBe("You said: Hello!");

    const stream = await openai.responses.create({ model: "simulator?tps=20", input: "a b c d e f g h", stream: true });
    let text = "";
    let stopped: Promise<number | null> | undefined;
    let last = "";
    for await (const event of stream) {
      last = event.type;
      if (event.type !== "response.output_text.delta") continue;
      text += event.delta;
      stopped ??= first.stop();
    }
    expect({ text, last, code: await stopped }).toEqual({
      text: "You said: a b c d e f g h",
      last: "response.completed",
      code: 0,
    });

    const { openai: again } = await begin();
    const next = await again.responses.create({
      model: "simulator",
      previous_response_id: stored.id,
      input: "And again!",
    });
    expect(next.output_text).toBe("You said: And again!");
    expect((await again.responses.retrieve(stored.id)).output_text).toBe("You said: Hello!");
  });
}

function client({ url }: Running, apiKey: string): OpenAI {
  return new OpenAI({ apiKey, baseURL: `${url}/v1`, maxRetries: 0 });
}
