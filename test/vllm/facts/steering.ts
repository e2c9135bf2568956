import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { SocketClient, type SocketEvent } from "../../e2e/socket-support.ts";
import { type Recorder, startRecorder } from "../recorder.ts";
import { counting } from "../speech.ts";
import { answerOf, type Gateway, type Run, type Subject, startGateway } from "./subject.ts";

type Steered = NonNullable<SocketEvent["response"]> & { usage: { input_tokens: number; output_tokens: number } };

/** Steering: a message during an answer ends it, and another answer follows. */
export function steering(subject: () => Subject, { engine, tokenMs }: Pick<Run, "engine" | "tokenMs">): void {
  /** Steers a response after this many deltas. Gives both responses. */
  async function steered(
    input: string,
    deltas: number,
    gateway = subject().gateway,
  ): Promise<[broken: Steered, next: Steered]> {
    const { server } = subject();
    const socket = await SocketClient.open(gateway);
    try {
      socket.create({ model: server.model, input, store: true });
      let seen = 0;
      const events = await socket.reached(({ type }) => {
        seen = type === "response.created" ? 0 : seen + (type.endsWith(".delta") ? 1 : 0);
        return seen === deltas;
      });
      socket.send({ type: "response.steer", previous_response_id: events[0]?.response?.id, input: "Stop." });
      const broken = await socket.ended();
      expect(broken.types).toContain("response.steer.accepted");
      expect(broken.last.response).toMatchObject({
        status: "incomplete",
        incomplete_details: { reason: "steered" },
      });
      const next = await socket.ended();
      expect(next.last.response).toMatchObject({ status: "completed", previous_response_id: broken.id });
      return [broken.last.response, next.last.response] as [Steered, Steered];
    } finally {
      socket.terminate();
    }
  }

  it("an answer ends at its present token, and the next one answers the message", async () => {
    const { server } = subject();
    const input = server.kind === "llamacpp" ? "COUNT" : counting(1_500, tokenMs);
    const [broken, next] = await steered(input, 5);
    expect(broken.usage.output_tokens).toBeLessThan(1_500);
    expect(answerOf(next as never)).toBe("You said: Stop.");
    // The prompt has the output so far.
    expect(next.usage.input_tokens).toBeGreaterThan(broken.usage.input_tokens);
  });

  if (engine !== "harmony") return;
  describe("gpt-oss", () => {
    let recorder: Recorder;
    let recorded: Gateway;
    beforeAll(async () => {
      recorder = await startRecorder(subject().server.url);
      recorded = await startGateway(recorder.url);
    });
    afterAll(async () => {
      await recorded?.close();
      recorder?.close();
    });

    it.each([
      ["thoughts", "analysis"],
      ["answer", "final"],
    ])("continues after the sampled tokens of its %s", async (_, channel) => {
      recorder.completions.length = 0;
      // Characters of several tokens, whose text alone does not show the place of the break.
      const text = Array.from({ length: 100 }, (__, index) => ` ${"ßwörd🦄".slice(index % 3)}${index}`).join("");
      const script = `‹|channel|›${channel}‹|message|›One.${text}‹|return|›`;
      const [broken, next] = await steered(`DELAY=${tokenMs} SCRIPT[[${script}]]`, 30, recorded);
      const [first, second] = recorder.completions;
      const { input_tokens: prompt, output_tokens: sampled } = broken.usage;
      const before = [...(first?.prompt ?? []), ...(first?.ids.slice(0, sampled) ?? [])];
      expect(before).toHaveLength(prompt + sampled);
      expect(next.usage.input_tokens).toBe(second?.prompt.length);
      // <|end|><|start|>user<|message|>Stop.<|end|><|start|>assistant
      const kept = second?.prompt.slice(0, -9) ?? [];
      // All of them, or all before a character that was broken off.
      expect(kept).toEqual(before.slice(0, kept.length));
      expect(before.length - kept.length).toBeLessThan(3);
    });
  });
}
