import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Tool, ToolChoiceTypes } from "openai/resources/responses/responses";
import { afterAll, beforeAll, expect, it } from "vitest";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { descriptionOf } from "../conformance/api-description.ts";
import { startWorkerd } from "../workerd/process.ts";
import { root } from "../workerd/tools.ts";
import { AddedCheckout } from "./added-checkout.ts";
import { GPT_OSS, lastTurns, tolerating } from "./harmony-support.ts";
import { type Gateway, gatewayAt, lastPrompt } from "./support.ts";
import { ask, itemsOfType, MODELS, onlyItem, shortly, textOf } from "./tool-support.ts";

/** A hosted tool that is added by the recipe of docs/tools.md ("Adding a hosted tool") alone is served. */

/** The files of a checkout that the recipe changes. */
const REQUEST = "packages/responses-api/src/hosted-tools.ts";
const LIST = "src/tools/plugins.ts";
const PLUGIN = "src/tools/dice/plugin.ts";
const END = "} as const satisfies Record<string, HostedRequest>;";

const dice = { type: "dice", sides: 20 } as unknown as Tool;
const search: Tool = { type: "web_search" };
/** OpenAI's types know neither the tool nor a choice of it. */
const DICE_IS_UNKNOWN = /value of tag "type" must be in oneOf "dice"|: \/tool_choice/;

let checkout: AddedCheckout;
let gateway: Gateway;
/** The compiler's errors while there is another tool, `coin`, of which only the first step is done. */
let faults: string;

beforeAll(async () => {
  checkout = new AddedCheckout();
  checkout.copy("dice/plugin.ts", PLUGIN);
  const fields = 'type: z.literal("dice"), sides: z.int().min(2).max(100).nullish()';
  checkout.write(REQUEST, "const codeInterpreterTool = z", `const diceTool = z.object({ ${fields} });\n`);
  checkout.write(REQUEST, END, "  dice: { schema: diceTool },");
  checkout.write(LIST, "import { MCP }", 'import { DICE } from "./dice/plugin.ts";');
  checkout.write(LIST, "  tool_search: TOOL_SEARCH,", "  dice: DICE,");
  faults = await checkout.compiledWith([REQUEST, END, '  coin: { schema: z.object({ type: z.literal("coin") }) },']);

  const bundle = checkout.bundle();
  const vllm = await serveSimulator();
  const vars = { VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true", HOSTED_TOOLS: "dice,web_search" };
  const worker = await startWorkerd(vars, { bundle });
  gateway = gatewayAt(worker, vllm, await descriptionOf(worker.url));
});
afterAll(async () => {
  await gateway?.close();
  checkout?.[Symbol.dispose]();
});

it("compiles with the steps of docs/tools.md; the compiler names missing steps", () => {
  expect(faults).toMatch(/^src\/tools\/plugins\.ts\(\d+,\d+\): .*'coin'.*\n$/);
  const docs = readFileSync(join(root, "docs/tools.md"), "utf8");
  const [, recipe = ""] = /^## Adding a hosted tool$([\s\S]*?)^## /m.exec(docs) ?? [];
  for (const file of [REQUEST, LIST, "plugin.ts"]) expect(recipe).toContain(`\`${file}\``);
});

it.each(MODELS)("is offered to %s, called, shown, and in the next prompt", async (model) => {
  const input = "Use roll_die, please.";
  const asked = { model, input, tools: [search, dice] };
  const { response, events } = await tolerating(gateway, DICE_IS_UNKNOWN, () => ask(gateway, "stream", asked));
  const call = { server_label: "dice", name: "roll", status: "completed", output: "A 20." };
  expect(onlyItem(response, "mcp_call")).toMatchObject(call);
  expect(textOf(response)).toContain("A 20.");
  expect(response.tools).toEqual([search, dice]);
  const types = events.map(({ type }) => type).filter((type) => type.includes("mcp_call"));
  expect([...new Set(types)]).toEqual([
    "response.mcp_call.in_progress",
    "response.mcp_call_arguments.delta",
    "response.mcp_call_arguments.done",
    "response.mcp_call.completed",
  ]);

  const next = { model, input: "Thanks.", previous_response_id: response.id, tools: [dice] };
  await tolerating(gateway, DICE_IS_UNKNOWN, () => ask(gateway, "json", next));
  const prompt = model === GPT_OSS ? await lastTurns(gateway) : shortly(lastPrompt(gateway));
  expect(prompt.join("\n")).toMatch(/roll_die[\s\S]*A 20\./);
});

it("is chosen by its type, and its fields are checked by its schema", async () => {
  const choice = { type: "dice" } as unknown as ToolChoiceTypes;
  const request = { model: "simulator", input: "Hello.", tools: [search, dice], tool_choice: choice };
  const { response } = await tolerating(gateway, DICE_IS_UNKNOWN, () => ask(gateway, "json", request));
  expect(itemsOfType(response, "mcp_call")).toHaveLength(1);
  const wrong = await gateway.post({ ...request, tools: [{ type: "dice", sides: 1 }] });
  expect(await wrong.json()).toMatchObject({ error: { param: "tools[0].sides" } });
  const twice = await gateway.post({ ...request, tools: [dice, dice] });
  expect(await twice.json()).toMatchObject({ error: { message: "The tool type 'dice' is used twice." } });
});
