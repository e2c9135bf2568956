import { describe, expect, it } from "vitest";
import { answerOf, expectCompleted, refusalOf, type Subject } from "./subject.ts";

/** A text of exactly the given number of tokens. */
const tokensOf = (count: number) => " word".repeat(count);

/** The model's window: prompts that fill it, answers that would not fit, and truncation. */
export function contextWindow(subject: () => Subject): void {
  /** A prompt of exactly the given number of tokens, including the template's. */
  async function promptOf(count: number): Promise<string> {
    const { usage } = await subject().ask(tokensOf(10), { max_output_tokens: 16 });
    return tokensOf(count - (usage?.input_tokens ?? 0) + 10);
  }

  const tooLong = { status: 400, code: "context_length_exceeded", param: "input" };

  it("a prompt below the window is answered to the window's end", async () => {
    const { ask, server } = subject();
    const response = await ask(await promptOf(server.window - 20));
    expect(response.usage?.input_tokens).toBe(server.window - 20);
    expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
    expect(response.usage?.total_tokens).toBe(server.window);
  });

  describe.each([false, true])("stream: %s", (stream) => {
    it("a prompt of exactly the window is refused, because no token fits", async () => {
      const { ask, server } = subject();
      const input = await promptOf(server.window);
      expect(await refusalOf(ask(input, { stream }))).toMatchObject(tooLong);
    });

    it("a prompt above the window is refused", async () => {
      const { ask, server } = subject();
      expect(await refusalOf(ask(tokensOf(server.window + 1), { stream }))).toMatchObject(tooLong);
    });

    it("max_output_tokens above the window is refused by its own name", async () => {
      const { ask, server } = subject();
      const refusal = await refusalOf(ask("Hello!", { max_output_tokens: server.window + 1, stream }));
      expect(refusal).toMatchObject({ status: 400, param: "max_output_tokens" });
    });
  });

  it("max_output_tokens of the whole window, or of its rest, is accepted", async () => {
    const { ask, server } = subject();
    const response = await ask("Hello!", { max_output_tokens: server.window });
    expectCompleted(response);
    expect(answerOf(response)).toBe("You said: Hello!");
  });

  describe("truncation", () => {
    /** Two long turns. A third does not fit after them. */
    async function longChain(): Promise<string> {
      const { ask, server } = subject();
      const third = tokensOf(Math.floor(server.window * 0.4));
      const first = await ask(third, { max_output_tokens: 16 });
      const second = await ask(third, { max_output_tokens: 16, previous_response_id: first.id });
      return second.id;
    }

    it("disabled: a history that does not fit is refused", async () => {
      const { ask, server } = subject();
      const input = tokensOf(Math.floor(server.window * 0.4));
      const refusal = await refusalOf(ask(input, { previous_response_id: await longChain() }));
      expect(refusal).toMatchObject({ status: 400, code: "context_length_exceeded" });
    });

    it("auto: the oldest turns are dropped", async () => {
      const { ask, server } = subject();
      const input = tokensOf(Math.floor(server.window * 0.4));
      const previous_response_id = await longChain();
      const response = await ask(`${input} end`, { previous_response_id, truncation: "auto", max_output_tokens: 16 });
      expect(["completed", "incomplete"]).toContain(response.status);
      expect(response.usage?.input_tokens).toBeLessThan(server.window);
      // One of the two is still there.
      expect(response.usage?.input_tokens).toBeGreaterThan(server.window * 0.75);
    });

    it("auto: an input that does not fit by itself is refused", async () => {
      const { ask, server } = subject();
      expect(await refusalOf(ask(tokensOf(server.window + 1), { truncation: "auto" }))).toMatchObject(tooLong);
    });
  });
}
