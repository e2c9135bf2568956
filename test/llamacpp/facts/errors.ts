import { describe, expect, it } from "vitest";
import { refusalOf, type Subject } from "../../vllm/facts/subject.ts";

/** Refusals with messages for the client, and errors that leave the server in its pool. */
export function errors(subject: () => Subject): void {
  describe.each([false, true])("stream: %s", (stream) => {
    it("a prompt that does not fit is context_length_exceeded, with the numbers", async () => {
      const { ask, server } = subject();
      const refusal = await refusalOf(ask(" word".repeat(server.window + 100), { stream }));
      expect(refusal).toMatchObject({ status: 400, code: "context_length_exceeded", param: "input" });
      expect(refusal.message).toContain(`${server.window}`);
    });

    it("an unknown model is a 400 that names it", async () => {
      const { ask } = subject();
      const refusal = await refusalOf(ask("Hello!", { model: "nothing", stream }));
      expect(refusal).toMatchObject({ code: "model_not_found", param: "model" });
      expect([400, 404]).toContain(refusal.status);
      expect(refusal.message).toContain("nothing");
    });

    it("an image is a 400 that names its part", async () => {
      const { ask } = subject();
      const picture = { type: "input_image", image_url: "data:image/png;base64,iVBORw0KGgo=", detail: "auto" };
      const input = [{ role: "user", content: [{ type: "input_text", text: "What is it?" }, picture] }];
      const refusal = await refusalOf(ask("", { input: input as never, stream }));
      expect(refusal).toMatchObject({ status: 400, param: "input[0].content[1]" });
    });

    it("an image in a tool's result is a 400", async () => {
      const { ask } = subject();
      const picture = { type: "input_image", image_url: "data:image/png;base64,iVBORw0KGgo=", detail: "auto" };
      const input = [
        { role: "user", content: "Look." },
        { type: "function_call", call_id: "call_1", name: "look", arguments: "{}" },
        { type: "function_call_output", call_id: "call_1", output: [picture] },
      ];
      const refusal = await refusalOf(ask("", { input: input as never, stream }));
      expect(refusal).toMatchObject({ status: 400 });
    });
  });

  it("an unknown model is refused in a count, too", async () => {
    const { gateway } = subject();
    const refusal = await refusalOf(gateway.openai.responses.inputTokens.count({ model: "nothing", input: "Hello!" }));
    expect(refusal).toMatchObject({ code: "model_not_found", param: "model" });
  });

  it("a model's fault in the background fails with the same code", async () => {
    const { gateway, server } = subject();
    const { id } = await gateway.openai.responses.create({
      model: server.model,
      input: " word".repeat(server.window + 1),
      background: true,
    });
    await expect
      .poll(async () => (await gateway.openai.responses.retrieve(id)).status, { timeout: 20_000 })
      .toBe("failed");
    expect((await gateway.openai.responses.retrieve(id)).error?.code).toBe("context_length_exceeded");
  });

  it("a client's own faults leave the server in its pool", async () => {
    const { ask, gateway } = subject();
    const picture = { type: "input_image", image_url: "data:image/png;base64,iVBORw0KGgo=", detail: "auto" };
    const input = [{ role: "user", content: [picture] }] as never;
    for (let time = 0; time < 6; time += 1) await refusalOf(ask("", { input }));
    const health = await fetch(`${gateway.url}/health/upstream`);
    expect(health.status).toBe(200);
    await health.body?.cancel();
  });

  it("health names the server's dialect", async () => {
    const { gateway } = subject();
    const health = await (await fetch(`${gateway.url}/health/upstream`)).text();
    expect(health).toMatch(/"dialect":\s*"llamacpp"/);
  });

  it("the models are those of its list", async () => {
    const { gateway, server } = subject();
    const models = await Array.fromAsync(gateway.openai.models.list());
    expect(models.map(({ id }) => id)).toEqual([server.model]);
    expect((await gateway.openai.models.retrieve(server.model)).id).toBe(server.model);
  });
}
