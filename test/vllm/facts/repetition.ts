import { describe, expect, it } from "vitest";
import { saying, words } from "../speech.ts";
import { answerOf, expectCompleted, messageTextOf, type Run, type Subject, thoughtOf, typesOf } from "./subject.ts";

const LINE = "Wait, let me look at the second case again. ";

/** A model that repeats itself. */
export function repetition(subject: () => Subject, { engine }: Pick<Run, "engine">): void {
  // A scripted gpt-oss does not know its script after a thought that was cut.
  const said = engine === "chat" ? "Four." : "(continued)";
  const detection = { max_pattern_size: 20, min_count: 4 };

  it.each([
    ["by the gateway", 100, {}],
    ["by repetition_detection", 20, { repetition_detection: detection }],
  ])("a thought that repeats itself is found %s, and the model answers", async (_, count, fields) => {
    const thought = `Two cases. ${LINE.repeat(count)}`;
    const response = await subject().ask({ thought, text: "Four." }, fields);
    expectCompleted(response);
    expect(typesOf(response)).toEqual(["reasoning", "message"]);
    expect(thought.startsWith(thoughtOf(response).trim())).toBe(true);
    expect(thoughtOf(response).length).toBeLessThan(count === 100 ? 3_000 : 400);
    expect(messageTextOf(response).trim()).toBe(said);
    expect(response).toMatchObject({ cut_items: [{ id: response.output[0]?.id, reason: "repetition" }] });
  });

  it("repetition_detection ends a thought beside tools, too", async () => {
    const f = { type: "function" as const, name: "f", parameters: { type: "object" }, strict: false };
    const thought = `Two cases. ${LINE.repeat(20)}`;
    const response = await subject().ask({ thought, text: "Four." }, { tools: [f], repetition_detection: detection });
    expectCompleted(response);
    expect(response).toMatchObject({ cut_items: [{ reason: "repetition" }] });
    expect(thoughtOf(response).length).toBeLessThan(400);
  });

  it("an answer that repeats itself ends after two more attempts", async () => {
    const { server, gateway } = subject();
    const line = "Rain falls on that roof, evermore. ";
    const input = saying(engine, { text: `Once. ${line.repeat(150)}` });
    const response = await gateway.openai.responses.create({ model: server.model, input });
    expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
    expect(response).toMatchObject({ cut_items: [{ reason: "repetition" }, { reason: "repetition" }] });
    expect(answerOf(response).startsWith(`Once. ${line}${line}`)).toBe(true);
  });

  if (engine !== "harmony") return;
  describe("gpt-oss", () => {
    it("has its thinking budget enforced by the gateway", async () => {
      const fields = { thinking_token_budget: 30, stream_interval: 1 };
      const response = await subject().ask({ thought: words(200), text: "Four." }, fields);
      expectCompleted(response);
      expect(response).toMatchObject({ cut_items: [{ reason: "thinking_token_budget" }] });
      expect(thoughtOf(response).split(" ").length).toBeLessThan(60);
      expect(messageTextOf(response).trim()).toBe(said);
    });
  });
}
