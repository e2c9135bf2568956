import type { ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { afterAll, beforeAll, expect, it } from "vitest";
import { newSeed, randomFrom } from "../random.ts";
import { eventually, type Gateway, startGateway } from "./support.ts";
import { ended, pause, promptsFor, textsOf } from "./turns.ts";

/**
 * Many turns at once on the real runtime must have the same result as some sequential order of them. `SEED=n` repeats a
 * run's choices.
 */

const TURNS = 50;

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startGateway({ CONVERSATION_LOCK_WAIT_MS: "60000" });
});
afterAll(() => gateway.close());

/** The client's knowledge of a turn in the end. */
interface Report {
  input: string;
  id: string | undefined;
  /** `unknown`: its client disconnected before it got anything. */
  outcome: "completed" | "cancelled" | "failed" | "unknown";
}

type Way = "json" | "stream" | "background" | "background stream";
type Fate = "stay" | "leave" | "cancel" | "fail";

/** Takes a turn in a random way, with a random event during it. */
async function take(
  body: ResponseCreateParamsNonStreaming & { input: string },
  { way, fate, after }: { way: Way; fate: Fate; after: number },
): Promise<Report> {
  const { openai } = gateway;
  const leaving = new AbortController();
  const report: Report = { input: body.input, id: undefined, outcome: "unknown" };
  const background = way.startsWith("background");
  // The event comes while the turn waits, or while it runs.
  const leave = fate === "leave" ? pause(20 * after).then(() => leaving.abort()) : undefined;
  const cancel = async (id: string) => {
    await pause(after);
    await openai.responses.cancel(id);
  };
  let cancelling: Promise<void> | undefined;
  try {
    if (way.endsWith("stream")) {
      const stream = await openai.responses.create({ ...body, background, stream: true }, { signal: leaving.signal });
      for await (const event of stream) {
        if (event.type === "response.created") report.id = event.response.id;
        if (background && fate === "cancel" && report.id) cancelling ??= cancel(report.id);
      }
    } else {
      const response = await openai.responses.create({ ...body, background }, { signal: leaving.signal });
      report.id = response.id;
      if (background && fate === "cancel") cancelling = cancel(response.id);
      if (response.status === "completed") report.outcome = "completed";
    }
  } catch (error) {
    if (fate !== "leave" && fate !== "fail") throw error;
    if (fate === "fail") report.outcome = "failed";
  }
  await Promise.all([leave, cancelling]);
  return report;
}

/** Asks the server for the end of a turn that the client does not know. */
async function complete(report: Report): Promise<void> {
  const { id } = report;
  if (id === undefined) return;
  // A stream that its client has left is stored a moment later, with its partial output.
  const stored = await eventually(async () => {
    try {
      return await ended(gateway, id);
    } catch {
      return undefined;
    }
  });
  report.outcome = stored.status === "completed" || stored.status === "cancelled" ? stored.status : "failed";
}

it(`${TURNS} turns at once on one conversation leave the history of some order of them`, async () => {
  const random = randomFrom(newSeed("linearizability"));
  const pick = <T>(values: readonly [T, ...T[]]): T => values[Math.floor(random() * values.length)] ?? values[0];
  const { id: conversation } = await gateway.openai.conversations.create();

  const reports = await Promise.all(
    Array.from({ length: TURNS }, async (_, index) => {
      const fate = pick<Fate>(["stay", "stay", "stay", "stay", "stay", "stay", "leave", "leave", "cancel", "fail"]);
      // Only background runs can be cancelled.
      const way =
        fate === "cancel"
          ? pick<Way>(["background", "background stream"])
          : pick<Way>(["json", "stream", "background", "background stream"]);
      const fault = fate === "fail" ? "&fault=error:4" : "";
      const model = `simulator?tps=${pick([50, 200, 1_000])}&ttft=${pick([0, 10, 30])}${fault}`;
      const after = Math.floor(random() * 150);
      await pause(Math.floor(random() * 300));
      return take({ model, input: `Turn ${index}, ${way}, ${fate}`, conversation }, { way, fate, after });
    }),
  );
  for (const report of reports) await complete(report);

  const texts = await textsOf(gateway, conversation);
  const order = texts.filter((_, index) => index % 2 === 0);
  // The history has complete turns, each once.
  expect(texts).toEqual(order.flatMap((input) => [input, `You said: ${input}`]));
  expect(new Set(order).size).toBe(order.length);
  // Each turn saw exactly the turns before it.
  for (const [index, input] of order.entries()) {
    expect(promptsFor(gateway, input).map((prompt) => prompt.texts)).toEqual([texts.slice(0, 2 * index + 1)]);
  }
  // No turn is lost, and none is there that should not be.
  const kept = new Set(order);
  for (const { input, outcome } of reports) {
    if (outcome === "unknown") continue;
    expect([input, kept.has(input)]).toEqual([input, outcome === "completed"]);
  }
  // Turns without a trace also saw a beginning of the history, and the model server was asked once for each.
  for (const { input } of reports) {
    const seen = promptsFor(gateway, input);
    expect(seen.length).toBeLessThanOrEqual(1);
    for (const { texts: prompt } of seen) expect(prompt.slice(0, -1)).toEqual(texts.slice(0, prompt.length - 1));
  }
  // No two ran at the same time.
  const spans = order.flatMap((input) => promptsFor(gateway, input));
  for (const [index, span] of spans.entries()) {
    expect(span.startedAt).toBeGreaterThanOrEqual(spans[index - 1]?.endedAt ?? 0);
  }
  const outcomes = Object.groupBy(reports, ({ outcome }) => outcome);
  console.log(Object.entries(outcomes).map(([outcome, some]) => `${outcome}: ${some?.length}`));
  expect(outcomes.completed?.length).toBeGreaterThan(TURNS / 4);
});

it(`${TURNS} branches at once from one response each see exactly their own ancestors`, async () => {
  const random = randomFrom(newSeed("linearizability"));
  const { openai } = gateway;
  const root = await openai.responses.create({ input: "Root" });
  const rooted = ["Root", "You said: Root"];

  await Promise.all(
    Array.from({ length: TURNS }, async (_, index) => {
      let previous = root.id;
      const ancestors = [...rooted];
      for (let depth = 0; depth < 3; depth += 1) {
        const input = `Branch ${index}, depth ${depth}`;
        const body = { model: `simulator?ttft=${Math.floor(random() * 100)}`, input, previous_response_id: previous };
        const background = index % 5 === 0;
        const { id } = await openai.responses.create({ ...body, background });
        const { output_text, status } = background ? await ended(gateway, id) : await openai.responses.retrieve(id);
        expect(status).toBe("completed");
        expect(promptsFor(gateway, input).map((prompt) => prompt.texts)).toEqual([[...ancestors, input]]);
        ancestors.push(input, output_text);
        previous = id;
      }
      expect(ancestors).toHaveLength(8);
    }),
  );
});
