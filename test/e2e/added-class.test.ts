import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { objectId } from "../../cli/tools/object-ids.ts";
import { workerOf } from "../../src/store/objects/registry.ts";
import { conformantFetch } from "../conformance/client.ts";
import { fetchAnew, root } from "../workerd/tools.ts";
import { AddedCheckout } from "./added-checkout.ts";
import { ADMIN_KEY, ask, call, type MadeKey, makeKey, newTenant } from "./key-support.ts";
import { cleanUp, newFolder, type Served, start } from "./serve-support.ts";
import { eventually } from "./support.ts";

/** A class of objects and a webhook event that are added by the recipes of CONTRIBUTING.md alone are served. */

/** The files of a checkout that the recipes change. */
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

const WORKERS = 2;

let checkout: AddedCheckout;
let served: Served;
const received: string[] = [];
const receiver = createServer(async (request, response) => {
  let text = "";
  for await (const piece of request) text += String(piece);
  received.push(text);
  response.end();
});

beforeAll(async () => {
  checkout = new AddedCheckout();
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

  await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  const variables = {
    ...{ ADMIN_KEY, KEY_CACHE_MS: "100", VLLM_BASE_URL: "http://127.0.0.1:1/v1", STATE_DIRECTORY: newFolder() },
    ...{ WORKERS: String(WORKERS), ALLOW_PRIVATE_WEBHOOKS: "true" },
    ...{ WEBHOOK_URL: `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`, WEBHOOK_SECRET: SECRET },
    RESPONSES_EDGE_TEST_BUNDLE: checkout.bundle(),
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

it("stores, in whichever worker has the object, is exported, and is erased", async () => {
  for (const worker of [0, 1]) {
    const key = await tenantAt(worker);
    // Each request has a connection of its own, so that both workers get some.
    for (let count = 0; count < 8; count += 1) expect(await keep(key, `Note ${count}`)).toBe(200);
    const kept = Array.from({ length: 8 }, (_, count) => ({ object: "note", text: `Note ${count}` }));
    expect(await exported(key)).toEqual(kept);
    await ask(api(), "DELETE", `/v1/admin/tenants/${key.tenant}`);
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

it("compiles with the steps of CONTRIBUTING.md; the compiler names missing steps", async () => {
  expect(await checkout.compiled()).toBe("");
  // A method that the row does not declare, a class without a row's way to be erased, and an event that nothing sends.
  const faults = await checkout.compiledWith(
    [CLASS, "  exported(): object[] {", "  count(): number {\n    return 0;\n  }\n"],
    [EVENTS, LAST_EVENT, '  "note.lost": { sender: "NOTES", about: "note" },'],
  );
  expect(faults).toMatch(/^src\/store\/objects\/objects\.ts\(.*[\s\S]*?Property 'count' is missing/m);
  expect(faults).toMatch(/^src\/store\/tenant\/webhooks\/announcing\.ts\(/m);
  const docs = readFileSync(join(root, "CONTRIBUTING.md"), "utf8");
  for (const file of [REGISTRY, CLASSES, EVENTS, BINDINGS]) expect(docs).toContain(`\`${file}\``);
});
