import { describe, expect, it } from "vitest";
import { saying } from "../speech.ts";
import type { Subject } from "./subject.ts";

/**
 * Probabilities instead of an answer. They are the model server's own: after `Answer:` the models of these facts have the letters from A
 * on as alternatives, each e times less likely than the one before, whichever of them is sampled.
 */
export function decisions(subject: () => Subject): void {
  /** Instructions after which the model says a letter: B, or, of llama.cpp's model, any. */
  const instructions = () => {
    const { engine, server } = subject();
    return saying(engine, { text: server.kind === "llamacpp" ? "Answer:<|letters|>" : "Answer: B" });
  };

  function expected(count: number): number[] {
    const weights = Array.from({ length: count }, (_, rank) => Math.exp(-rank));
    const sum = weights.reduce((all, weight) => all + weight, 0);
    return weights.map((weight) => weight / sum);
  }

  const about = (value: number | undefined) => expect.closeTo(value ?? Number.NaN, 2);

  it("of a predicate, a choice and a score are those of the letters, in one request", async () => {
    const { gateway, server } = subject();
    const { answers, usage } = await gateway.openai.decisions.create({
      model: server.model,
      input: "My parcel has not arrived.",
      questions: [
        { type: "predicate", name: "refund", instructions: instructions() },
        { type: "choice", instructions: instructions(), choices: [{ value: "billing" }, { value: "shipping" }] },
        {
          type: "score",
          instructions: instructions(),
          levels: [{ label: "calm" }, { label: "annoyed" }, { label: "furious" }],
        },
      ],
    });
    const [two, three] = [expected(2), expected(3)];
    expect(answers).toEqual([
      { type: "predicate", name: "refund", probability: about(two[0]) },
      {
        type: "choice",
        name: null,
        choice: "billing",
        confidence: about(two[0]),
        probabilities: [
          { value: "billing", probability: about(two[0]) },
          { value: "shipping", probability: about(two[1]) },
        ],
      },
      {
        type: "score",
        name: null,
        score: about((three[1] ?? 0) + 2 * (three[2] ?? 0)),
        confidence: about(three[0]),
        probabilities: ["calm", "annoyed", "furious"].map((label, value) => ({
          label,
          value,
          probability: about(three[value]),
        })),
      },
    ]);
    expect(usage).toMatchObject({ output_tokens: 3, output_tokens_details: { reasoning_tokens: 0 } });
    expect(usage.total_tokens).toBe(usage.input_tokens + 3);
  });

  it("of ten options are all given; of more, the best ones of each group are compared", async () => {
    const { gateway, server } = subject();
    const values = Array.from({ length: 12 }, (_, index) => `v${index}`);
    const asked = (count: number) => ({
      type: "choice" as const,
      instructions: instructions(),
      choices: values.slice(0, count).map((value) => ({ value })),
    });
    const { answers, usage } = await gateway.openai.decisions.create({
      model: server.model,
      input: "Which?",
      questions: [asked(10), asked(12)],
    });
    const [ten, twelve] = answers.map((answer) =>
      answer.type === "choice" ? answer.probabilities.map(({ probability }) => probability) : [],
    );
    expect(ten).toEqual(expected(10).map(about));
    // The best of the last two comes second to the best of the first ten.
    const weights = [...expected(10).map((each, _, [best = 1]) => each / best), Math.exp(-1), Math.exp(-2)];
    const sum = weights.reduce((all, weight) => all + weight, 0);
    expect(twelve).toEqual(weights.map((weight) => about(weight / sum)));
    expect(usage.output_tokens).toBe(4);
  });

  describe("about a conversation", () => {
    it("come at the end of its prompt", async () => {
      const { gateway, server } = subject();
      const { answers } = await gateway.openai.decisions.create({
        model: server.model,
        input: [
          { role: "user", content: "Where is my parcel?" },
          { role: "assistant", content: "On its way." },
          { role: "user", content: [{ type: "input_json", data: { parcel: 7 } }] },
        ],
        questions: [{ type: "predicate", instructions: instructions() }],
      });
      expect(answers).toEqual([{ type: "predicate", name: null, probability: about(expected(2)[0]) }]);
    });
  });
}
