import { describe, expect, it } from "vitest";
import { expectCompleted, type Subject } from "./subject.ts";

/** A conversation that continues from its summary. */
export function compaction(subject: () => Subject): void {
  const input = [
    { role: "user" as const, content: "Tell me all." },
    { role: "assistant" as const, content: "It is a long tale.".concat(" word".repeat(1_500)) },
    { role: "user" as const, content: "And now?" },
  ];
  const context_management = [{ type: "compaction", compact_threshold: 1_000 }];

  interface Rounds {
    input_tokens_per_turn?: number[];
    cached_tokens_per_turn?: number[];
  }

  describe("before an answer", () => {
    it("shortens the prompt, and its own prompt is in the prefix cache", async () => {
      const { gateway, server } = subject();
      const body = { model: server.model, input };
      await gateway.openai.responses.create(body);
      const response = await gateway.openai.responses.create({ ...body, context_management });
      expectCompleted(response);
      expect(response.output[0]?.type).toBe("compaction");
      const { input_tokens_per_turn: prompts = [], cached_tokens_per_turn: cached = [] } = response.usage as Rounds;
      const [summary = 0, answer = 0] = prompts;
      expect(summary).toBeGreaterThan(1_500);
      // A token of the model behind llama.cpp is a byte.
      expect(answer).toBeLessThan(server.kind === "llamacpp" ? summary : 1_000);
      // All requests but the one for the summary, which takes as many bytes as the conversation has tokens.
      expect(cached[0]).toBeGreaterThan(server.kind === "llamacpp" ? 1_500 : summary * 0.7);
      const { input_tokens } = await gateway.openai.responses.inputTokens.count({
        model: server.model,
        previous_response_id: response.id,
        input: "Later.",
      });
      expect(input_tokens).toBeLessThan(1_500);
    });
  });
}
