import type { Tool } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { descriptionOf } from "../conformance/api-description.ts";
import { startWorkerd } from "../workerd/process.ts";
import { type Gateway, gatewayAt, lastPrompt } from "./support.ts";
import { itemsOfType, mcp, startTools, type ToolServer } from "./tool-support.ts";

/** Images in the results of MCP tools, for models that see. */

const SEEING = "simulator-vision";
const BLIND = "simulator";
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

let gateway: Gateway;
let server: ToolServer;
beforeAll(async () => {
  const image = (mimeType: string, data: string) => ({ type: "image" as const, mimeType, data });
  server = await startTools({
    draw: { run: () => ({ content: [{ type: "text", text: "A dot:" }, image("image/png", PNG)] }) },
    odd: {
      run: () => ({
        content: [image("image/svg+xml", PNG), image("image/png", "A".repeat(4_100_000))],
      }),
    },
  });
  const vllm = await serveSimulator({ models: [BLIND, SEEING] });
  const worker = await startWorkerd(
    {
      VLLM_BASE_URL: `${vllm.url}/v1`,
      ALLOW_ANONYMOUS: "true",
      PROMPT_CACHE_SAMPLE: "0",
      MCP_SERVERS: server.url,
      CODEX_MODELS: JSON.stringify({ [SEEING]: { input_modalities: ["text", "image"] } }),
    },
    { readsFormats: false },
  );
  gateway = gatewayAt(worker, vllm, await descriptionOf(worker.url));
});
afterAll(async () => {
  await gateway.close();
  await server.close();
});

const ask = (model: string, tool: string, more: object = {}) =>
  gateway.openai.responses.create({ model, input: `Call docs__${tool}.`, tools: [mcp(server) as Tool], ...more });
const results = () =>
  (lastPrompt(gateway).messages as { role: string; content: unknown }[]).filter(({ role }) => role === "tool");

const TEXT = "A dot:\n[image/png, 70 bytes]";
const SEEN = [
  { type: "text", text: TEXT },
  { type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } },
];

describe("an image in the result of an MCP tool", () => {
  it("is shown to a model that sees, in its turn and in the next one", async () => {
    const first = await ask(SEEING, "draw");
    expect(results()).toMatchObject([{ content: SEEN }]);
    expect(itemsOfType(first, "mcp_call")).toMatchObject([{ output: TEXT }]);
    await gateway.openai.responses.create({ model: SEEING, input: "What is it?", previous_response_id: first.id });
    expect(results()).toMatchObject([{ content: SEEN }]);
  });

  it("is a placeholder to a model that does not", async () => {
    await ask(BLIND, "draw");
    expect(results()).toMatchObject([{ content: TEXT }]);
  });

  it("is only a placeholder where it is of another type, or too large", async () => {
    await ask(SEEING, "odd");
    const [result] = results();
    expect(result?.content).toMatch(/^\[image\/svg\+xml, 70 bytes\]\n\[image\/png, 3075000 bytes\]$/);
  });
});
