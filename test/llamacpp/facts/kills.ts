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
/** ` n1 n2 …`: the output of the model, which counts. */
const numbers = (count: number) => Array.from({ length: count }, (_, index) => `n${index + 1}`).join(" ");
const TEXT = words(80);
const ARGUMENTS = JSON.stringify({ words: TEXT });

interface Doing {
  input: string | Speech;
  fields: Fields;
  /** The events that show the middle of the output, and their required number. */
  shows: RegExp;
  deltas?: number;
  /** The condition of a completed response. */
  whole(response: Response): void;
  /** True if it may fail instead of continuing: the shown part of a call cannot be withdrawn. */
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
    // A call is shown when it is complete. Before, only the end of the reasoning is visible.
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
    // Evaluated when the test needs it.
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

  /** Checks the result: the whole output, or a failure if nothing else is correct. */
  function expectWhole(response: Response, { whole, mayFail }: Doing): void {
    if (mayFail && response.status === "failed") {
      expect(response.error?.code).toBeTruthy();
      return;
    }
    if (response.status === "incomplete") {
      // Output that counts up to its limit.
      expect(response.incomplete_details?.reason).toBe("max_output_tokens");
      expect(response.max_output_tokens).toBe(NUMBERS);
    } else expectCompleted(response);
    whole(response);
  }

  /** The output counts, before and after the kill. A token is a byte, or a number. */
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
    ])("in %s: nothing is lost or repeated", { timeout: FACT_MS }, async (__, background) => {
      const { gateway } = subject();
      const reading = read(gateway, doing, { background });
      const id = await untilMiddle(reading, doing);
      await lifeOf().kill();
      await lifeOf().start();
      await reading.end.catch(() => {});
      const response = await ended(gateway, id);
      expectWhole(response, doing);
      // The reader has all stored events.
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
      "%s: nothing is lost or repeated, and the usage is that of the whole output",
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
