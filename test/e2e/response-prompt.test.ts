import type { ResponsePrompt } from "@responses-edge/responses-api/platform/response-prompt";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { expectError } from "./expectations.ts";
import { type Gateway, joinGateway } from "./support.ts";
import { ended, prompts, unique } from "./turns.ts";

/** The prompt of a stored response: what its model got, made again. */

let gateway: Gateway;
beforeAll(async () => {
  gateway = await joinGateway();
});
afterAll(() => gateway.close());

const path = (id: string) => `${gateway.url}/v1/responses/${id}/prompt`;

async function promptOf(id: string): Promise<ResponsePrompt> {
  const answer = await gateway.fetch(path(id));
  expect(answer.status, await answer.clone().text()).toBe(200);
  return (await answer.json()) as ResponsePrompt;
}

/** The messages and the tools that the simulator got last. */
function sent() {
  const body = gateway.vllm.simulator.lastAsked?.body as { messages: object[]; tools?: object[] };
  return { messages: body.messages, tools: body.tools ?? [] };
}

const look = { type: "function", name: "look", parameters: { type: "object", properties: {} }, strict: false } as const;
const asked = { model: "simulator", instructions: "Be brief.", tools: [look], tool_choice: "none" as const };

describe("the prompt of a response", () => {
  it("has the messages and tools that the model server was sent, the parameters, and the text that it makes of them", async () => {
    const input = unique("Hello");
    const { id } = await gateway.openai.responses.create({ ...asked, input, temperature: 0.25, max_output_tokens: 50 });
    const first = sent();
    const prompt = await promptOf(id);
    expect(prompt).toMatchObject({
      ...{ object: "response.prompt", server: "vllm", model: "simulator", rendered_by: "vllm", raw: false },
      ...first,
      parameters: { temperature: 0.25, max_output_tokens: 50, tool_choice: "none" },
    });
    expect(prompt.rendered).toContain("Be brief.");
    expect(prompt.rendered).toContain(input);
    expect(prompt.rendered).not.toContain("You said");
    // A turn that continues it has the answer, too.
    const next = { ...asked, input: "And now?", previous_response_id: id };
    const second = await gateway.openai.responses.create(next);
    const { messages } = sent();
    expect(await promptOf(second.id)).toMatchObject({ messages });
    expect(messages.length).toBeGreaterThan(first.messages.length);
    // The first one stays as it was.
    expect(await promptOf(id)).toEqual(prompt);
  });

  it("is that of the first round, also in a conversation, and of a run", async () => {
    const { id: conversation } = await gateway.openai.conversations.create();
    const [one, two] = [unique("One"), unique("Two")];
    await gateway.openai.responses.create({ model: "simulator", input: one, conversation });
    const run = await gateway.openai.responses.create({
      model: "simulator",
      input: two,
      conversation,
      background: true,
    });
    const second = await ended(gateway, run.id);
    await gateway.openai.responses.create({ model: "simulator", input: "Three", conversation });
    const { messages } = await promptOf(second.id);
    expect(messages?.map(({ content }) => content)).toEqual([one, `You said: ${one}`, two]);
    expect(prompts(gateway).map(({ texts }) => texts)).toContainEqual(messages?.map(({ content }) => content));
  });

  it("of gpt-oss has Harmony's messages, rendered by the gateway", async () => {
    const input = unique("Hello");
    const { id } = await gateway.openai.responses.create({ ...asked, model: "simulator-harmony", input });
    const prompt = await promptOf(id);
    expect(prompt).toMatchObject({ rendered_by: "gateway", raw: false });
    expect(prompt.messages?.map(({ role }) => role)).toEqual(["system", "developer", "user"]);
    const wire = gateway.vllm.simulator.lastAsked?.body;
    expect(wire).toMatchObject({ prompt: `${prompt.rendered}<|start|>assistant` });
  });

  it.each(["simulator", "simulator-harmony"])("has the raw messages that were kept: %s", async (model) => {
    const body = { model, input: "Hello!", enable_response_messages: true };
    const created = await gateway.openai.responses.create(body as { model: string; input: string });
    const { input_messages: kept } = created as unknown as { input_messages: object[] };
    const prompt = await promptOf(created.id);
    expect(prompt).toMatchObject({ raw: true, messages: kept });
    expect(prompt.rendered).toContain("Hello!");
  });

  it("is without messages where a part of its history was deleted, and unknown where there is no response", async () => {
    const { id: first } = await gateway.openai.responses.create({ ...asked, input: "Hello!" });
    const next = { ...asked, input: "And now?", previous_response_id: first };
    const { id } = await gateway.openai.responses.create(next);
    await gateway.openai.responses.delete(first);
    const left = await promptOf(id);
    expect(left).toMatchObject({ messages: null, rendered: null, rendered_by: null, server: "vllm" });
    expect(left.tools).toMatchObject([{ name: "look" }]);
    await expectError(await gateway.fetch(path(first)), { status: 404, code: "response_not_found" });
  });
});
