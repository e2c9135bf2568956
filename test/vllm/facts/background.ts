import type { Response } from "openai/resources/responses/responses";
import { expect, it } from "vitest";
import { eventually } from "../../e2e/support.ts";
import { counting, words } from "../speech.ts";
import { answerOf, expectCompleted, finalOf, type Run, type Subject, textOf } from "./subject.ts";

/** Runs without a client (polled, resumed, cancelled), and clients that disconnect. */
export function background(subject: () => Subject, run: Run): void {
  const { owned, tokenMs } = run;
  const WAIT_MS = 60_000;
  /** Words that no client waits for: almost as many as fit the smaller window. */
  const ENDLESS = 1_500;

  /** The number of generations that the server is running. */
  const generations = async () => (await subject().server.generations?.()) ?? Number.NaN;

  /** Reads a stream up to the given number of text deltas, then disconnects. Returns the last event's number. */
  async function readSome(body: object, deltas: number): Promise<{ id: string; last: number; text: string }> {
    const { gateway, server } = subject();
    const stream = await gateway.openai.responses.create({
      model: server.model,
      input: counting(ENDLESS, tokenMs),
      stream: true,
      ...body,
    });
    let [id, last, text, seen] = ["", -1, "", 0];
    for await (const event of stream) {
      last = event.sequence_number;
      if (event.type === "response.created") id = event.response.id;
      if (event.type !== "response.output_text.delta") continue;
      text += event.delta;
      seen += 1;
      if (seen === deltas) break;
    }
    expect(seen).toBe(deltas);
    return { id, last, text };
  }

  it("a background run ends without a client, and can be polled", async () => {
    const { ask, gateway } = subject();
    const { id, status } = await ask(counting(20), { background: true });
    expect(status).toBe("queued");
    const response = await eventually(async () => {
      const now: Response = await gateway.openai.responses.retrieve(id);
      return ["queued", "in_progress"].includes(now.status ?? "") ? undefined : now;
    }, WAIT_MS);
    expectCompleted(response);
    expect(answerOf(response)).toBe(words(20));
  });

  it("a reader that has disconnected continues after its last event", async () => {
    const { gateway } = subject();
    const { id, last, text } = await readSome({ background: true, input: counting(60, tokenMs) }, 5);
    const rest = await Array.fromAsync(
      await gateway.openai.responses.retrieve(id, { stream: true, starting_after: last }),
    );
    expect(rest[0]?.sequence_number).toBe(last + 1);
    expect((text + textOf(rest)).replace(/^\n+/, "")).toBe(words(60));
    expectCompleted(finalOf(rest));
    const whole = await Array.fromAsync(await gateway.openai.responses.retrieve(id, { stream: true }));
    expect(whole.map((event) => event.sequence_number)).toEqual(whole.map((_, index) => index));
    expect(textOf(whole).replace(/^\n+/, "")).toBe(words(60));
  });

  it("cancel keeps the partial output", async () => {
    const { gateway } = subject();
    const { id, text } = await readSome({ background: true }, 5);
    const response = await gateway.openai.responses.cancel(id);
    expect(response.status).toBe("cancelled");
    const said = response.output.flatMap((item) => (item.type === "message" ? item.content : []));
    const kept = said.map((part) => ("text" in part ? part.text : "")).join("");
    expect(kept.startsWith(text)).toBe(true);
    expect(words(ENDLESS).startsWith(kept.replace(/^\n+/, ""))).toBe(true);
    expect(await gateway.openai.responses.retrieve(id)).toMatchObject({ status: "cancelled", output: response.output });
  });

  it.runIf(owned)("cancel ends the generation at the server", async () => {
    const { gateway } = subject();
    await eventually(async () => (await generations()) === 0, WAIT_MS);
    const { id } = await readSome({ background: true }, 3);
    expect(await generations()).toBe(1);
    await gateway.openai.responses.cancel(id);
    await eventually(async () => (await generations()) === 0, WAIT_MS);
  });

  it.runIf(owned)("a client's disconnection from a stream ends the generation at the server", async () => {
    const { gateway } = subject();
    await eventually(async () => (await generations()) === 0, WAIT_MS);
    const { id } = await readSome({}, 3);
    await eventually(async () => (await generations()) === 0, WAIT_MS);
    const response = await eventually(() => gateway.openai.responses.retrieve(id).catch(() => undefined), WAIT_MS);
    expect(response.status).toBe("cancelled");
  });

  it("a background run goes on when its client has disconnected", async () => {
    const { gateway } = subject();
    const { id } = await readSome({ background: true, input: counting(60, tokenMs) }, 3);
    const response = await eventually(async () => {
      const now: Response = await gateway.openai.responses.retrieve(id);
      return ["queued", "in_progress"].includes(now.status ?? "") ? undefined : now;
    }, WAIT_MS);
    expectCompleted(response);
    expect(answerOf(response)).toBe(words(60));
  });
}
