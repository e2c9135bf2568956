import type { ResponseCreateParamsStreaming, ResponseStreamEvent } from "openai/resources/responses/responses";
import { describe, expect, it } from "vitest";
import { eventually } from "../../e2e/support.ts";
import type { Life, ModelServer } from "../model-server.ts";
import { counting, saying, words } from "../speech.ts";
import { startTcpBalancer } from "../tcp-balancer.ts";
import {
  answerOf,
  expectCompleted,
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
  name: string;
  events: ResponseStreamEvent[];
  /** Rejects when the stream breaks. */
  end: Promise<void>;
}

/** Servers that die in the middle of their answers. Each fact leaves the server running; they come last. */
export function deaths(subject: () => Subject, run: Run): void {
  const { restartMs, tokenMs } = run;
  /** A server's way back, and the rest of the answers. */
  const FACT_MS = 2 * restartMs + 60_000;

  function lifeOf({ life }: ModelServer): Life {
    if (!life) throw new Error("This server is not ours.");
    return life;
  }

  function begin(name: string, gateway: Gateway, body: Omit<ResponseCreateParamsStreaming, "stream">): Reading {
    const events: ResponseStreamEvent[] = [];
    const end = (async () => {
      for await (const event of await gateway.openai.responses.create({ ...body, stream: true })) events.push(event);
    })();
    // Looked at when the fact asks for it.
    end.catch(() => {});
    return { name, events, end };
  }

  /** Answers in every state that a server can die in, each in the middle of it. */
  async function beginAll(gateway: Gateway): Promise<Reading[]> {
    const { server, engine } = subject();
    const { model } = server;
    const long = counting(WORDS, tokenMs);
    const thinking = saying(engine, { thought: words(WORDS), text: "Done." }, tokenMs);
    const structured = saying(engine, { text: JSON_TEXT, bound: true }, tokenMs);
    const readings = [
      begin("in the foreground", gateway, { model, input: long }),
      begin("in the background", gateway, { model, input: long, background: true }),
      begin("in its reasoning", gateway, { model, input: thinking, background: true }),
      begin("in structured output", gateway, { model, input: structured, background: true, text: { format: FORMAT } }),
    ];
    const spoken = ({ events }: Reading) => events.filter(({ type }) => type.endsWith("text.delta")).length;
    // The reasoning of the others is a few tokens.
    await eventually(() => readings.every((reading) => spoken(reading) >= 16), 60_000);
    return readings;
  }

  async function ended(readings: readonly Reading[]): Promise<void> {
    for (const reading of readings) {
      await reading.end;
      const response = finalOf(reading.events);
      expect({ name: reading.name, status: response.status, error: response.error }).toEqual({
        name: reading.name,
        status: "completed",
        error: null,
      });
      expectCompleted(response);
      if (reading.name === "in its reasoning") {
        expect(answerOf(response)).toBe("Done.");
        expect(thoughtOf(response)).toContain(words(WORDS));
      } else if (reading.name === "in structured output") {
        expect(JSON.parse(messageTextOf(response))).toEqual({ words: words(WORDS) });
      } else {
        // No word lost, none said twice: to the reader, and in what is kept.
        expect(textOf(reading.events).replace(/^\n+/, "")).toBe(words(WORDS));
        expect(answerOf(response)).toBe(words(WORDS));
      }
    }
  }

  async function expectServed(): Promise<void> {
    expect(answerOf(await subject().ask("Back?"))).toBe("You said: Back?");
  }

  describe("the engine is killed while it generates, and the server started again", () => {
    it("every answer goes on where it was, and one begun meanwhile begins", { timeout: FACT_MS }, async () => {
      const { gateway, server } = subject();
      const readings = await beginAll(gateway);
      await lifeOf(server).crashEngine();
      const late = begin("begun meanwhile", gateway, {
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
    it("its silence is noticed, and every answer goes on", { timeout: FACT_MS }, async () => {
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

  describe("two replicas behind a TCP balancer", () => {
    it("one is killed: what it was generating goes on on the other", { timeout: FACT_MS }, async () => {
      const { server, engine } = subject();
      const other = await run.serve(engine);
      const balancer = await startTcpBalancer([server.url, other.url]);
      const gateway = await startGateway(balancer.url, run.variables);
      try {
        const readings = await beginAll(gateway);
        const busy = async ({ generations }: ModelServer) => ((await generations?.()) ?? 0) > 0;
        const [first, second] = (await busy(server)) ? [server, other] : [other, server];
        expect(await busy(first)).toBe(true);
        await lifeOf(first).kill();
        await ended(readings);
        expect(await busy(second)).toBe(false);
      } finally {
        await gateway.close();
        await balancer.close();
        await other.close();
      }
    });
  });
}
