import type { ResponseCreateParamsStreaming, ResponseStreamEvent } from "openai/resources/responses/responses";
import { describe, expect, it } from "vitest";
import { eventually } from "../../e2e/support.ts";
import type { Life, ModelServer } from "../model-server.ts";
import { counting, type Speech, saying, words } from "../speech.ts";
import { startTcpBalancer } from "../tcp-balancer.ts";
import {
  answerOf,
  finalOf,
  type Gateway,
  messageTextOf,
  type Run,
  type Subject,
  startGateway,
  textOf,
  thoughtOf,
} from "./subject.ts";

const WORDS = 80;
const JSON_TEXT = JSON.stringify({ words: words(WORDS) });
const FORMAT = {
  type: "json_schema" as const,
  name: "words",
  strict: true,
  schema: {
    type: "object",
    properties: { words: { type: "string" } },
    required: ["words"],
    additionalProperties: false,
  },
};

/** A stream that is being read. */
interface Reading {
  state: State;
  events: ResponseStreamEvent[];
  /** Rejects when the stream breaks, or ends with an error. */
  end: Promise<void>;
}

/** The state of an answer at the time its server dies. */
type State = "in the foreground" | "in the background" | "reasoning" | "reasoning before JSON" | "in its JSON";

/** Servers that die in the middle of their answers. Each fact leaves the server running. These facts come last. */
export function deaths(subject: () => Subject, run: Run): void {
  const { restartMs } = run;
  /** The time of a server's restart, and the rest of the answers. */
  const FACT_MS = 2 * restartMs + 60_000;

  function lifeOf({ life }: ModelServer): Life {
    if (!life) throw new Error("This server is not ours.");
    return life;
  }

  function begin(state: State, gateway: Gateway, body: Omit<ResponseCreateParamsStreaming, "stream">): Reading {
    const events: ResponseStreamEvent[] = [];
    const end = (async () => {
      for await (const event of await gateway.openai.responses.create({ ...body, stream: true })) events.push(event);
    })();
    // Read when the fact needs it.
    end.catch(() => {});
    return { state, events, end };
  }

  /**
   * Answers in every state in which a server can die, each in the middle of its output. On a machine that stood still,
   * the answers are slower.
   */
  async function beginAll(gateway: Gateway, tokenMs = run.tokenMs): Promise<Reading[]> {
    const { server, engine } = subject();
    const { model } = server;
    const counted = counting(WORDS, tokenMs);
    const thought = words(WORDS);
    const text = { format: FORMAT };
    const background = true;
    const say = (speech: Speech) => ({ model, background, input: saying(engine, speech, tokenMs) });
    const readings = [
      begin("in the foreground", gateway, { model, input: counted }),
      begin("in the background", gateway, { model, input: counted, background }),
      begin("reasoning", gateway, say({ thought, text: "Done." })),
      begin("reasoning before JSON", gateway, { ...say({ thought, text: '{"words": "w0"}', bound: true }), text }),
      begin("in its JSON", gateway, { ...say({ text: JSON_TEXT, bound: true }), text }),
    ];
    const spoken = ({ events }: Reading) => events.filter(({ type }) => type.endsWith("text.delta")).length;
    // The reasoning of answers that are already in their text is a few tokens.
    await eventually(() => readings.every((reading) => spoken(reading) >= 16), 120_000);
    const isOver = ({ events }: Reading) => events.some(({ type }) => type === "response.completed");
    return readings.some(isOver) ? beginAll(gateway, tokenMs * 2) : readings;
  }

  async function ended(readings: readonly Reading[]): Promise<void> {
    for (const { state, events, end } of readings) {
      await end;
      const response = finalOf(events);
      const { status, error } = response;
      expect({ state, status, error }).toEqual({ state, status: "completed", error: null });
      if (state === "reasoning") {
        expect(answerOf(response)).toBe("Done.");
        expect(thoughtOf(response)).toContain(words(WORDS));
      } else if (state === "reasoning before JSON") {
        expect(JSON.parse(messageTextOf(response))).toEqual({ words: "w0" });
      } else if (state === "in its JSON") {
        const json = JSON.parse(messageTextOf(response)) as { words: string };
        expect(Object.keys(json)).toEqual(["words"]);
        // A scripted model counts tokens, and a template adds some before the text that goes on.
        const isExact = subject().engine === "harmony";
        expect(json.words.slice(0, isExact ? undefined : 8)).toBe(isExact ? words(WORDS) : words(3));
      } else {
        // No word is lost or repeated, in the stream and in the stored response.
        expect(textOf(events).replace(/^\n+/, "")).toBe(words(WORDS));
        expect(answerOf(response)).toBe(words(WORDS));
      }
    }
  }

  async function expectServed(): Promise<void> {
    expect(answerOf(await subject().ask("Back?"))).toBe("You said: Back?");
  }

  describe("the engine is killed while it generates, and the server started again", () => {
    it("every answer continues in its place, and one requested meanwhile begins", { timeout: FACT_MS }, async () => {
      const { gateway, server } = subject();
      const readings = await beginAll(gateway);
      await lifeOf(server).crashEngine();
      const late = begin("in the background", gateway, {
        model: server.model,
        input: counting(WORDS),
        background: true,
      });
      await eventually(() => late.events.some(({ type }) => type === "response.created"), 10_000);
      await lifeOf(server).start();
      await ended([...readings, late]);
      await expectServed();
    });
  });

  describe("the server is terminated while it generates, and started again", () => {
    it("its silence is noticed, and every answer continues", { timeout: FACT_MS }, async () => {
      const { gateway, server } = subject();
      const readings = await beginAll(gateway);
      await lifeOf(server).terminate();
      const health = await fetch(`${gateway.url}/health/upstream`);
      await health.body?.cancel();
      expect(health.status).toBe(503);
      await lifeOf(server).start();
      await ended(readings);
      await expectServed();
    });
  });

  /** Two replicas, of which one is killed while they generate. */
  async function killOneOfTwo(connect: (urls: [string, string]) => Promise<{ gateway: Gateway; close(): unknown }>) {
    const { server, engine } = subject();
    const other = await run.serve(engine);
    const { gateway, close } = await connect([server.url, other.url]);
    try {
      const readings = await beginAll(gateway);
      const busy = async ({ generations }: ModelServer) => ((await generations?.()) ?? 0) > 0;
      const [first, second] = (await busy(server)) ? [server, other] : [other, server];
      expect(await busy(first)).toBe(true);
      await lifeOf(first).kill();
      await ended(readings);
      expect(await busy(second)).toBe(false);
      if (first === server) await lifeOf(server).start();
    } finally {
      await gateway.close();
      await close();
      await other.close();
    }
  }

  describe("two replicas as a pool", () => {
    it("one is killed: its answers continue on the other", { timeout: FACT_MS }, async () => {
      await killOneOfTwo(async (urls) => {
        const gateway = await startGateway(urls, { ...run.variables, SHOW_UPSTREAM: "true" });
        await expectOneServer(gateway);
        return { gateway, close: () => {} };
      });
    });
  });

  /** The turns of a conversation go to one of several servers. */
  async function expectOneServer(gateway: Gateway): Promise<void> {
    const { model } = subject().server;
    const servers = new Set<string | null>();
    let previous: string | null = null;
    for (let turn = 0; turn < 3; turn += 1) {
      const answer: Response = await gateway.fetch(`${gateway.url}/v1/responses`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ model, input: `Turn ${turn}`, previous_response_id: previous }),
      });
      servers.add(answer.headers.get("x-upstream"));
      previous = ((await answer.json()) as { id: string }).id;
    }
    expect([...servers]).toEqual([expect.stringMatching(/^[01]$/)]);
  }

  describe("two replicas behind a TCP balancer", () => {
    it("one is killed: its answers continue on the other", { timeout: FACT_MS }, async () => {
      await killOneOfTwo(async (urls) => {
        const balancer = await startTcpBalancer(urls);
        return { gateway: await startGateway(balancer.url, run.variables), close: () => balancer.close() };
      });
    });
  });
}
