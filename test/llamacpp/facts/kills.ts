import type {
  Response,
  ResponseCreateParamsStreaming,
  ResponseStreamEvent,
} from "openai/resources/responses/responses";
import { describe, expect, it } from "vitest";
import { eventually } from "../../e2e/support.ts";
import {
  answerOf,
  callsOf,
  expectCompleted,
  type Fields,
  type Gateway,
  messageTextOf,
  type Run,
  type Subject,
  startGateway,
  textOf,
  thoughtOf,
} from "../../vllm/facts/subject.ts";
import { type Speech, saying, words } from "../../vllm/speech.ts";

const NUMBERS = 150;
/** ` n1 n2 …`: what the model counts by itself. */
const numbers = (count: number) => Array.from({ length: count }, (_, index) => `n${index + 1}`).join(" ");
const TEXT = words(80);
const ARGUMENTS = JSON.stringify({ words: TEXT });

interface Doing {
  input: string | Speech;
  fields: Fields;
  /** The events that show that it is in the middle of it, once there are so many. */
  shows: RegExp;
  deltas?: number;
  /** What is true of a response that is completed. */
  whole(response: Response): void;
  /** Whether it may fail in place of going on: what has been shown of a call cannot be taken back. */
  mayFail?: boolean;
}

const tools = [
  {
    type: "function" as const,
    name: "keep",
    parameters: { type: "object", properties: { words: { type: "string" } }, required: ["words"] },
    strict: false,
  },
];

const STATES: Record<string, Doing> = {
  "in its text": {
    input: { text: TEXT },
    fields: {},
    shows: /output_text\.delta$/,
    whole: (response) => expect(answerOf(response)).toBe(TEXT),
  },
  counting: {
    input: "COUNT",
    fields: { max_output_tokens: NUMBERS },
    shows: /output_text\.delta$/,
    whole: (response) => expect(answerOf(response).trim()).toBe(numbers(NUMBERS)),
  },
  "in its thoughts": {
    input: { thought: TEXT, text: "Done." },
    fields: {},
    shows: /reasoning_text\.delta$/,
    whole(response) {
      expect(answerOf(response)).toBe("Done.");
      expect(thoughtOf(response)).toContain(TEXT);
    },
  },
  "in a call": {
    input: { calls: [{ name: "keep", arguments: ARGUMENTS }] },
    fields: { tools },
    // A call is told when it is whole: what is seen of it is that its thoughts are over.
    shows: /reasoning_text\.delta$/,
    deltas: 2,
    whole(response) {
      expect(callsOf(response)).toHaveLength(1);
      expect(JSON.parse(callsOf(response)[0]?.arguments ?? "")).toEqual({ words: TEXT });
    },
    mayFail: true,
  },
  "in its JSON": {
    input: { text: ARGUMENTS },
    fields: {
      text: {
        format: {
          type: "json_schema",
          name: "words",
          strict: true,
          schema: {
            type: "object",
            properties: { words: { type: "string" } },
            required: ["words"],
            additionalProperties: false,
          },
        },
      },
    },
    shows: /output_text\.delta$/,
    whole: (response) => expect(JSON.parse(messageTextOf(response))).toEqual({ words: TEXT }),
    mayFail: true,
  },
};

const DELTAS = 16;

/** Processes that are killed in the middle of an answer: the model server, the gateway, and both. */
export function kills(subject: () => Subject, run: Run): void {
  const FACT_MS = run.restartMs + 60_000;

  interface Reading {
    events: ResponseStreamEvent[];
    end: Promise<void>;
  }

  function read(gateway: Gateway, { input, fields }: Doing, more: Fields): Reading {
    const { server, engine } = subject();
    const events: ResponseStreamEvent[] = [];
    const said = typeof input === "string" ? input : saying(engine, input);
    const end = (async () => {
      const body = { model: server.model, input: said, ...fields, ...more, stream: true as const };
      const stream = await gateway.openai.responses.create(body as ResponseCreateParamsStreaming);
      for await (const event of stream) events.push(event);
    })();
    // Looked at when the fact asks for it.
    end.catch(() => {});
    return { events, end };
  }

  async function untilMiddle({ events }: Reading, { shows, deltas = DELTAS }: Doing): Promise<string> {
    await eventually(() => events.filter(({ type }) => shows.test(type)).length >= deltas, 60_000);
    if (deltas < DELTAS) await new Promise((resolve) => setTimeout(resolve, 700));
    expect(events.some(({ type }) => type === "response.completed")).toBe(false);
    const [first] = events;
    return first && "response" in first ? first.response.id : "";
  }

  async function ended(gateway: Gateway, id: string): Promise<Response> {
    return eventually(async () => {
      const now = await gateway.openai.responses.retrieve(id).catch(() => undefined);
      return now && !["queued", "in_progress"].includes(now.status ?? "") ? now : undefined;
    }, 60_000);
  }

  /** What has come of it: all of it, or a failure that says so where nothing else is honest. */
  function expectWhole(response: Response, { whole, mayFail }: Doing): void {
    if (mayFail && response.status === "failed") {
      expect(response.error?.code).toBeTruthy();
      return;
    }
    if (response.status === "incomplete") {
      // What counts up to its limit.
      expect(response.incomplete_details?.reason).toBe("max_output_tokens");
      expect(response.max_output_tokens).toBe(NUMBERS);
    } else expectCompleted(response);
    whole(response);
  }

  /** What was generated counts, before and after the kill. A token is a byte, or a number. */
  async function expectUsage(gateway: Gateway, response: Response, { input }: Doing): Promise<void> {
    const { usage, status } = response;
    if (status === "failed") return;
    const said = messageTextOf(response) + thoughtOf(response) + (callsOf(response)[0]?.arguments ?? "");
    if (input !== "COUNT") {
      expect(usage?.output_tokens).toBeGreaterThanOrEqual(said.length);
      return;
    }
    expect(usage?.output_tokens).toBe(NUMBERS);
    const { model } = subject().server;
    const short = await gateway.openai.responses.create({ model, input, max_output_tokens: 16 });
    expect(usage?.input_tokens).toBe(short.usage?.input_tokens);
  }

  function lifeOf() {
    const { life } = subject().server;
    if (!life) throw new Error("This server is not ours.");
    return life;
  }

  describe.each(Object.entries(STATES))("the model server is killed while it is %s", (_, doing) => {
    it.each([
      ["the foreground", false],
      ["the background", true],
    ])("in %s: nothing is lost and nothing said twice", { timeout: FACT_MS }, async (__, background) => {
      const { gateway } = subject();
      const reading = read(gateway, doing, { background });
      const id = await untilMiddle(reading, doing);
      await lifeOf().kill();
      await lifeOf().start();
      await reading.end.catch(() => {});
      const response = await ended(gateway, id);
      expectWhole(response, doing);
      // The reader has heard what is kept.
      expect(textOf(reading.events)).toBe(messageTextOf(response));
      await expectUsage(gateway, response, doing);
    });

    it("twice", { timeout: 2 * FACT_MS }, async () => {
      const { gateway } = subject();
      const reading = read(gateway, doing, { background: true });
      const id = await untilMiddle(reading, doing);
      await lifeOf().kill();
      await lifeOf().start();
      const before = reading.events.length;
      await eventually(() => reading.events.length > before + 3, 5_000).catch(() => {});
      await lifeOf().kill();
      await lifeOf().start();
      await reading.end.catch(() => {});
      expectWhole(await ended(gateway, id), doing);
    });
  });

  describe.each(Object.entries(STATES))("the gateway is killed while a background run is %s", (_, doing) => {
    it.each([
      ["alone", false],
      ["with the model server", true],
    ])(
      "%s: nothing is lost and nothing said twice, and the usage is of it all",
      { timeout: FACT_MS },
      async (__, both) => {
        const gateway = await startGateway(subject().server.url);
        try {
          const reading = read(gateway, doing, { background: true });
          const id = await untilMiddle(reading, doing);
          await gateway.process.kill();
          if (both) await lifeOf().kill();
          await reading.end.catch(() => {});
          if (both) await lifeOf().start();
          await gateway.process.restart();
          const response = await ended(gateway, id);
          expectWhole(response, doing);
          if (response.status === "failed") return;
          const replay = await Array.fromAsync(await gateway.openai.responses.retrieve(id, { stream: true }));
          expect(replay.map((event) => event.sequence_number)).toEqual(replay.map((___, index) => index));
          expect(textOf(replay)).toBe(messageTextOf(response));
          await expectUsage(gateway, response, doing);
        } finally {
          await gateway.close();
        }
      },
    );
  });
}
