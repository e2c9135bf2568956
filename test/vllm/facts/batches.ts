import { toFile } from "openai";
import type { Batch, BatchCreateParams } from "openai/resources/batches";
import type { Response } from "openai/resources/responses/responses";
import { expect, it } from "vitest";
import { eventually } from "../../e2e/support.ts";
import { type Speech, saying } from "../speech.ts";
import { answerOf, callsOf, expectCompleted, type Subject } from "./subject.ts";

interface Line {
  custom_id: string;
  response: { status_code: number; body: unknown };
}

/** Batches: requests in a file, answered by the model server in another one. */
export function batches(subject: () => Subject): void {
  const WAIT_MS = 100_000;

  async function answered(endpoint: BatchCreateParams["endpoint"], bodies: Record<string, object>): Promise<Batch> {
    const { openai } = subject().gateway;
    const lines = Object.entries(bodies).map(([custom_id, body]) =>
      JSON.stringify({ custom_id, method: "POST", url: endpoint, body: { model: subject().server.model, ...body } }),
    );
    const file = await openai.files.create({ file: await toFile(Buffer.from(lines.join("\n"))), purpose: "batch" });
    const { id } = await openai.batches.create({ input_file_id: file.id, endpoint, completion_window: "24h" });
    return eventually(async () => {
      const batch = await openai.batches.retrieve(id);
      return ["completed", "failed", "expired"].includes(batch.status) ? batch : undefined;
    }, WAIT_MS);
  }

  async function linesOf(file: string | undefined): Promise<Record<string, Line["response"]>> {
    const text = await (await subject().gateway.openai.files.content(file ?? "")).text();
    const lines = text
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as Line);
    return Object.fromEntries(lines.map(({ custom_id, response }) => [custom_id, response]));
  }

  const said = (speech: Speech) => saying(subject().engine, speech);

  it("responses, with reasoning and calls, are answered, counted and stored; refusals are reported", async () => {
    const look = { type: "function", name: "look", parameters: { type: "object" }, strict: false };
    const batch = await answered("/v1/responses", {
      text: { input: said({ thought: "Let me see.", text: "Four." }) },
      call: { input: said({ calls: [{ name: "look", arguments: '{"at": "Bonn"}' }] }), tools: [look] },
      bad: { input: "Hello!", temperature: 9 },
    });
    expect(batch).toMatchObject({ status: "completed", request_counts: { total: 3, completed: 2, failed: 1 } });
    const lines = await linesOf(batch.output_file_id);
    expect(Object.keys(lines)).toEqual(["text", "call"]);
    const [text, call] = [lines.text?.body, lines.call?.body] as [Response, Response];
    expectCompleted(text);
    expect(answerOf(text)).toBe("Four.");
    expect(callsOf(call)).toMatchObject([{ name: "look", arguments: '{"at": "Bonn"}' }]);
    expect(batch.usage).toMatchObject({
      input_tokens: (text.usage?.input_tokens ?? 0) + (call.usage?.input_tokens ?? 0),
      output_tokens: (text.usage?.output_tokens ?? 0) + (call.usage?.output_tokens ?? 0),
    });
    expect((await subject().gateway.openai.responses.retrieve(text.id)).output).toEqual(text.output);
    const refused = await linesOf(batch.error_file_id);
    expect(refused).toMatchObject({ bad: { status_code: 400, body: { error: { param: "temperature" } } } });
  });

  it("chat completions are the model server's own", async () => {
    const messages = [{ role: "user", content: "one two three" }];
    const body = { messages, max_tokens: 10, temperature: 0 };
    const batch = await answered("/v1/chat/completions", { a: body, b: body });
    expect(batch).toMatchObject({ status: "completed", request_counts: { total: 2, completed: 2 } });
    const { a, b } = await linesOf(batch.output_file_id);
    const own = await fetch(`${subject().server.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: subject().server.model, ...body }),
    });
    const told = (await own.json()) as { choices: { message: object }[]; usage: { completion_tokens: number } };
    for (const answer of [a, b]) {
      expect(answer).toMatchObject({
        status_code: 200,
        body: { object: "chat.completion", choices: [{ message: told.choices[0]?.message }] },
      });
    }
    expect(batch.usage?.output_tokens).toBe(2 * told.usage.completion_tokens);
  });
}
