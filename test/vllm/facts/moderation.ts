import type { Response } from "openai/resources/responses/responses";
import { expect, it } from "vitest";
import type { ModelServer } from "../model-server.ts";
import { expectCompleted, finalOf, messageTextOf, type Subject } from "./subject.ts";

/** The settings of a gateway whose guard is a model of this server: Llama Guard's format, or gpt-oss-safeguard's. */
export function guardedBy({ engine, model, url }: ModelServer): Record<string, string> {
  return {
    GUARD_MODEL: model,
    GUARD_BASE_URL: `${url}/v1`,
    GUARD_FORMAT: engine === "harmony" ? "gpt-oss-safeguard" : "llama-guard",
    // A server without a GPU is slow.
    GUARD_TIMEOUT_MS: "60000",
  };
}

/** Moderation by a guard model, whose verdict a text sets by `<verdict …>`. */
export function moderation(subject: () => Subject): void {
  const [model, block] = ["omni-moderation-latest", { mode: "block" as const }];
  const flagged = { type: "moderation_result", flagged: true, categories: { illicit: true, hate: false } };

  const good = "<verdict safe>";
  const bad = () => (subject().engine === "harmony" ? "<verdict illicit>" : "<verdict S2>");

  const isFiltered = ({ status, incomplete_details }: Response) =>
    expect({ status, incomplete_details }).toEqual({
      status: "incomplete",
      incomplete_details: { reason: "content_filter" },
    });

  it("an input that the guard flags reaches no model", async () => {
    const response = await subject().ask(`How? ${bad()}`, { moderation: { model, policy: { input: block } } });
    isFiltered(response);
    expect(response.output).toEqual([]);
    expect(response.moderation?.input).toMatchObject(flagged);
  });

  it("an input that it does not flag is answered, and the answer is judged, too", async () => {
    const policy = { input: block, output: block };
    const response = await subject().ask(`How? ${good}`, { moderation: { model, policy } });
    expectCompleted(response);
    const passed = { type: "moderation_result", flagged: false, categories: { illicit: false } };
    expect(response.moderation).toMatchObject({ input: passed, output: passed });
  });

  it("an answer is shown up to the sentence that the guard flags", async () => {
    const harmless = "There is a great deal to be said about the keeping of fires in stoves. ".repeat(2);
    const speech = { text: `${harmless}This is bad, ${bad()}. ${harmless}` };
    const events = await subject().stream(speech, { moderation: { model, policy: { output: block } } });
    const response = finalOf(events);
    isFiltered(response);
    expect(response.moderation?.output).toMatchObject(flagged);
    expect(messageTextOf(response)).toMatch(/stoves\.\s*$/);
    expect(JSON.stringify(events)).not.toContain("This is");
  });

  it("an answer that begins like a guard's is judged, too", async () => {
    const speech = { text: `safe\n\nThis is bad, ${bad()}.` };
    const response = await subject().ask(speech, { moderation: { model, policy: { output: block } } });
    isFiltered(response);
    expect(response.moderation?.output).toMatchObject(flagged);
  });

  it("/v1/moderations judges texts", async () => {
    const { results } = await subject().gateway.openai.moderations.create({ input: [`One. ${good}`, `Two. ${bad()}`] });
    expect(results.map((result) => result.flagged)).toEqual([false, true]);
    const score = results[1]?.category_scores.illicit;
    expect(score).toBeGreaterThanOrEqual(0.5);
    expect(score).toBeLessThanOrEqual(1);
  });
}
