import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { Tool, ToolChoiceTypes } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { objectId } from "../../cli/tools/object-ids.ts";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { workerOf } from "../../src/store/objects/registry.ts";
import { descriptionOf } from "../conformance/api-description.ts";
import { conformantFetch } from "../conformance/client.ts";
import { startWorkerd } from "../workerd/process.ts";
import { fetchAnew, root } from "../workerd/tools.ts";
import { AddedCheckout } from "./added-checkout.ts";
import { GPT_OSS, lastTurns, tolerating } from "./harmony-support.ts";
import { ADMIN_KEY, call, ask as callAdmin, type MadeKey, makeKey, newTenant } from "./key-support.ts";
import { cleanUp, newFolder, type Served, start } from "./serve-support.ts";
import { eventually, type Gateway, gatewayAt, lastPrompt } from "./support.ts";
import { ask, itemsOfType, MODELS, onlyItem, shortly, textOf } from "./tool-support.ts";

/**
 * Parts that are added by the documentation's recipes alone are served: a class of objects and a webhook event
 * (CONTRIBUTING.md), and a hosted tool (docs/tools.md, "Adding a hosted tool"). One copy of the checkout has them all.
 */

/** The files of a checkout that the recipes of CONTRIBUTING.md change. */
const REGISTRY = "src/store/objects/registry.ts";
const CLASSES = "src/index.ts";
const EVENTS = "packages/responses-api/src/platform/webhooks.ts";
const BINDINGS = "wrangler.toml";
const CLASS = "src/store/tenant/notes/notes.ts";

const ROW = `  NOTES: {
    className: "Notes",
    migrations: [],
    scope: "tenant",
    exported: "itself",
    erased: "itself",
    methods: { keep: "once", exported: "repeatable", erase: "repeatable" },
  },`;
const LAST_ROW = "  QUOTAS: {";
const LAST_EVENT = '  "response.incomplete": {';

/** The files that the recipe of docs/tools.md changes. */
const REQUEST = "packages/responses-api/src/hosted-tools.ts";
const LIST = "src/tools/plugins.ts";
const PLUGIN = "src/tools/dice/plugin.ts";
const END = "} as const satisfies Record<string, HostedRequest>;";

const WORKERS = 2;

const dice = { type: "dice", sides: 20 } as unknown as Tool;
const search: Tool = { type: "web_search" };
/** OpenAI's types know neither the tool nor a choice of it. */
const DICE_IS_UNKNOWN = /value of tag "type" must be in oneOf "dice"|: \/tool_choice/;

let checkout: AddedCheckout;
/** The folder of its Worker's bundle. */
let bundle: string;
let served: Served;
const received: string[] = [];
const receiver = createServer(async (request, response) => {
  let text = "";
  for await (const piece of request) text += String(piece);
  received.push(text);
  response.end();
});

function addClass(): void {
  checkout.copy("notes/notes.ts", CLASS);
  checkout.write(REGISTRY, LAST_ROW, ROW);
  checkout.write(CLASSES, "export { Webhooks }", 'export { Notes } from "./store/tenant/notes/notes.ts";');
  checkout.write(EVENTS, LAST_EVENT, '  "note.kept": { sender: "NOTES", about: "note" },');
  checkout.write(BINDINGS, "[durable_objects]", '[exports.Notes]\ntype = "durable-object"\nstorage = "sqlite"\n');
  checkout.write(BINDINGS, '  { name = "HOME"', '  { name = "NOTES", class_name = "Notes" },');
  // Endpoints by which the test reaches it, by the recipe for those.
  checkout.copy("notes/endpoints.ts", "src/http/notes.ts");
  checkout.write("src/http/endpoints.ts", "import { passthrough }", 'import { notes } from "./notes.ts";');
  checkout.write("src/http/endpoints.ts", "  ...models,", "  ...notes,");
}

function addTool(): void {
  checkout.copy("dice/plugin.ts", PLUGIN);
  const fields = 'type: z.literal("dice"), sides: z.int().min(2).max(100).nullish()';
  checkout.write(REQUEST, "const codeInterpreterTool = z", `const diceTool = z.object({ ${fields} });\n`);
  checkout.write(REQUEST, END, "  dice: { schema: diceTool },");
  checkout.write(LIST, "import { MCP }", 'import { DICE } from "./dice/plugin.ts";');
  checkout.write(LIST, "  tool_search: TOOL_SEARCH,", "  dice: DICE,");
}

beforeAll(async () => {
  checkout = new AddedCheckout();
  addClass();
  addTool();
  bundle = checkout.bundle();
  await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  const variables = {
    ...{ ADMIN_KEY, KEY_CACHE_MS: "100", VLLM_BASE_URL: "http://127.0.0.1:1/v1", STATE_DIRECTORY: newFolder() },
    ...{ WORKERS: String(WORKERS), ALLOW_PRIVATE_WEBHOOKS: "true" },
    ...{ WEBHOOK_URL: `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`, WEBHOOK_SECRET: SECRET },
    RESPONSES_EDGE_TEST_BUNDLE: bundle,
  };
  served = await start(variables, { file: join(checkout.folder, "cli/main.ts") });
});
afterAll(() => {
  cleanUp();
  receiver.close();
  checkout?.[Symbol.dispose]();
});

const SECRET = `whsec_${Buffer.from("a secret of thirty-two bytes ...").toString("base64")}`;

const api = () => ({ url: served.url, fetch: conformantFetch(fetchAnew) });

/** A tenant whose object is in the share of a worker. */
async function tenantAt(worker: number): Promise<MadeKey> {
  for (;;) {
    const tenant = newTenant();
    if (workerOf(objectId(tenant, "responses-edge-Notes"), WORKERS) === worker) return makeKey(api(), tenant);
  }
}

const keep = async ({ value }: MadeKey, text: string) =>
  (await call(api(), "POST", "/v1/notes", { object: "note", text }, value)).status;

async function exported({ tenant }: MadeKey): Promise<unknown[]> {
  const lines = (await (await call(api(), "GET", `/v1/admin/tenants/${tenant}/export`)).text()).trimEnd().split("\n");
  return lines.map((line) => JSON.parse(line) as { object: string }).filter(({ object }) => object === "note");
}

it("compile with the steps of the recipes; the compiler names missing steps", async () => {
  expect(await checkout.compiled()).toBe("");
  // A method that the row does not declare, an event that nothing sends, and the fields of a tool without the tool.
  const faults = await checkout.compiledWith(
    [CLASS, "  exported(): object[] {", "  count(): number {\n    return 0;\n  }\n"],
    [EVENTS, LAST_EVENT, '  "note.lost": { sender: "NOTES", about: "note" },'],
    [REQUEST, END, '  coin: { schema: z.object({ type: z.literal("coin") }) },'],
  );
  const places = [...faults.matchAll(/^(\S+?)\(/gm)].map(([, file]) => file);
  expect(places, faults).toEqual([
    "src/store/objects/objects.ts",
    "src/store/tenant/webhooks/announcing.ts",
    "src/tools/plugins.ts",
  ]);
  expect(faults).toMatch(/^ .*Property 'count' is missing/m);
  expect(faults).toMatch(/^src\/tools\/plugins\.ts.*'coin'/m);
});

it("are added in the files that the recipes name", () => {
  const contributing = readFileSync(join(root, "CONTRIBUTING.md"), "utf8");
  for (const file of [REGISTRY, CLASSES, EVENTS, BINDINGS]) expect(contributing).toContain(`\`${file}\``);
  const docs = readFileSync(join(root, "docs/tools.md"), "utf8");
  const [, recipe = ""] = /^## Adding a hosted tool$([\s\S]*?)^## /m.exec(docs) ?? [];
  for (const file of [REQUEST, LIST, "plugin.ts"]) expect(recipe).toContain(`\`${file}\``);
});

describe("a class of objects", () => {
  it("stores, in whichever worker has the object, is exported, and is erased", async () => {
    for (const worker of [0, 1]) {
      const key = await tenantAt(worker);
      // Each request has a connection of its own, so that both workers get some.
      for (let count = 0; count < 8; count += 1) expect(await keep(key, `Note ${count}`)).toBe(200);
      const kept = Array.from({ length: 8 }, (_, count) => ({ object: "note", text: `Note ${count}` }));
      expect(await exported(key)).toEqual(kept);
      await callAdmin(api(), "DELETE", `/v1/admin/tenants/${key.tenant}`);
      expect(await exported(key)).toEqual([]);
    }
  });

  it("sends its event", async () => {
    const key = await tenantAt(1);
    const text = `note_${key.tenant}`;
    expect(await keep(key, text)).toBe(200);
    const isOfNote = (sent: string) => sent.includes('"type":"note.kept"') && sent.includes(text);
    await eventually(() => received.some(isOfNote));
  });
});

describe("a hosted tool", () => {
  let gateway: Gateway;
  beforeAll(async () => {
    const vllm = await serveSimulator();
    const vars = { VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true", HOSTED_TOOLS: "dice,web_search" };
    const worker = await startWorkerd(vars, { bundle });
    gateway = gatewayAt(worker, vllm, await descriptionOf(worker.url));
  });
  afterAll(() => gateway?.close());

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
});
