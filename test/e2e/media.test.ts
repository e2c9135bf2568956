import { createHash } from "node:crypto";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { expectError } from "./expectations.ts";
import { type Gateway, joinGateway, lastPrompt, startGateway } from "./support.ts";

/**
 * Images and videos, which vLLM fetches itself: the gateway passes no private address on. And vLLM's fields that only
 * the operator may open.
 */

const LISTED = "http://media.internal:9000/public";

let gateway: Gateway;
/** DNS over HTTPS. */
let names: Server;
let keyed: Gateway;
let opened: Gateway;
const KEY = "key-of-tenant-a";
const AUTHORIZED = { authorization: `Bearer ${KEY}` };
beforeAll(async () => {
  names = createServer((request, response) => {
    const { searchParams } = new URL(request.url ?? "/", "http://dns");
    const data = searchParams.get("name")?.startsWith("inside.") ? "10.0.0.1" : "93.184.216.34";
    const Answer = searchParams.get("type") === "A" ? [{ type: 1, data }] : [];
    response.writeHead(200, { "content-type": "application/dns-json" }).end(JSON.stringify({ Status: 0, Answer }));
  });
  await new Promise<void>((resolve) => names.listen(0, "127.0.0.1", resolve));
  const { port } = names.address() as AddressInfo;
  const API_KEYS = `a:${createHash("sha256").update(KEY).digest("hex")}`;
  gateway = await startGateway({ MEDIA_URLS: LISTED });
  keyed = await startGateway({ API_KEYS });
  const DNS_OVER_HTTPS_URL = `http://127.0.0.1:${port}/dns-query`;
  opened = await startGateway({ API_KEYS, VLLM_EXTRAS: "priority, chat_template_kwargs", DNS_OVER_HTTPS_URL });
});
afterAll(async () => {
  for (const each of [gateway, keyed, opened]) await each.close();
  names.close();
});

const REFUSED = [
  "http://127.0.0.1:8000/",
  "https://127.0.0.1/cat.png",
  "https://127.1/cat.png",
  "https://2130706433/cat.png",
  "https://0x7f.1/cat.png",
  "https://[::1]/cat.png",
  "https://[::ffff:10.0.0.1]/cat.png",
  "https://localhost./cat.png",
  "https://vllm/cat.png",
  "https://10.0.0.1.nip.io/cat.png",
  "http://169.254.169.254/latest/meta-data/",
  "http://metadata.google.internal/computeMetadata/v1/",
  "http://acme.dev/cat.png",
  "https://user:password@acme.dev/cat.png",
  "https://acme.dev\\@127.0.0.1/cat.png",
  "https://acme.dev\t/cat.png",
  "file:///etc/passwd",
  "ftp://acme.dev/cat.png",
  "//127.0.0.1/cat.png",
  "http://media.internal:9000/private/cat.png",
  "http://media.internal:9000/public/..;/private/cat.png",
  "http://media.internal:9000/public/%252e%252e/private/cat.png",
  "http://media.internal:9001/public/cat.png",
];

const ADMITTED = ["https://acme.dev/cat.png", `${LISTED}/cat.png`, "http://MEDIA.internal.:9000/public/a/b.png?c=d"];

const image = (image_url: string) => ({ type: "input_image", image_url, detail: "auto" });
const video = (video_url: string) => ({ type: "input_video", video_url });
const user = (...content: object[]) => ({ type: "message", role: "user", content });
const text = { type: "input_text", text: "What is this?" };

function generations(of: Gateway): number {
  return of.vllm.simulator.requests.filter(({ path }) => path === "/v1/chat/completions").length;
}

describe("an image or a video", () => {
  it.each(REFUSED)("is not fetched from %s", async (url) => {
    const before = generations(gateway);
    for (const [param, input] of [
      ["input[1].content[1].image_url", [user(text), user(text, image(url))]],
      ["input[0].content[0].video_url", [user(video(url))]],
      [
        "input[2].output[1].image_url",
        [
          user(text),
          { type: "function_call", call_id: "call_1", name: "look", arguments: "{}" },
          { type: "function_call_output", call_id: "call_1", output: [text, image(url)] },
        ],
      ],
    ] as const) {
      for (const fields of [{}, { stream: true }, { background: true }]) {
        await expectError(await gateway.post({ model: "simulator", input, ...fields }), { status: 400, param });
      }
    }
    expect(generations(gateway)).toBe(before);
  });

  it.each(REFUSED)("from %s cannot be added to a conversation", async (url) => {
    const send = (path: string, body: object) =>
      gateway.fetch(`${gateway.url}/v1/conversations${path}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
    const items = [user(text), user(image(url))];
    await expectError(await send("", { items }), { status: 400, param: "items[1].content[0].image_url" });
    const { id } = (await (await send("", {})).json()) as { id: string };
    await expectError(await send(`/${id}/items`, { items }), { status: 400, param: "items[1].content[0].image_url" });
  });

  it.each(ADMITTED)("is fetched by vLLM from %s", async (url) => {
    const answer = await gateway.post({ model: "simulator", input: [user(image(url), video(url))] });
    expect(answer.status).toBe(200);
    expect(lastPrompt(gateway).messages).toMatchObject([
      { content: [{ image_url: { url } }, { type: "video_url", video_url: { url } }] },
    ]);
  });

  it("may be a data URL of any length, which needs no fetch", async () => {
    const data = `data:image/png;base64,${"A".repeat(1_000_000)}`;
    const answer = await gateway.post({
      model: "simulator",
      input: [user(image(data), video("data:video/mp4;base64,AA=="))],
    });
    expect(answer.status).toBe(200);
  });

  it("is refused by its name's address if names are looked up", async () => {
    const post = (input: object[]) => opened.post({ model: "simulator", input }, AUTHORIZED);
    const inside = [user(image("https://acme.dev/cat.png"), image("https://inside.acme.dev/cat.png"))];
    await expectError(await post(inside), {
      status: 400,
      param: "input[0].content[1].image_url",
      code: "invalid_url",
    });
    const outside = [user(image("https://acme.dev/cat.png"), image("https://acme.dev/dog.png"))];
    expect((await post(outside)).status).toBe(200);
    const many = [user(...Array.from({ length: 17 }, (_, index) => image(`https://a${index}.acme.dev/cat.png`)))];
    await expectError(await post(many), { status: 400, param: "input" });
  });
});

describe("an image that was stored while more was allowed", () => {
  let before: Gateway;
  beforeAll(async () => {
    before = await joinGateway();
  });
  afterAll(() => before.close());

  /** Replaces the URL in a home's stored rows. */
  function replaceUrl(id: string): void {
    const { storage } = before;
    storage.execAt(id, "UPDATE turns SET input = replace(input, 'https://acme.dev/', 'http://10.0.0.1/')");
    expect(storage.execAt(id, "SELECT 1 AS found FROM turns WHERE input LIKE '%http://10.0.0.1/%'")).not.toEqual([]);
  }

  const input = [user(image("https://acme.dev/cat.png"))] as never;

  it.each([{}, { stream: true }, { background: true }])("is not fetched for a later turn, %j", async (fields) => {
    const { id } = await before.openai.responses.create({ model: "simulator", input });
    // A home caches the chain of its newest response.
    await before.openai.responses.create({ model: "simulator", input: "And?", previous_response_id: id });
    replaceUrl(id);
    const asked = generations(before);
    const later = { model: "simulator", input: "And now?", ...fields };
    await expectError(await before.post({ ...later, previous_response_id: id }), {
      status: 400,
      param: "previous_response_id",
      code: "invalid_url",
    });
    const [item] = (await before.openai.responses.inputItems.list(id)).data;
    const reference = { type: "item_reference", id: item?.id };
    await expectError(await before.post({ ...later, input: [user(text), reference] }), {
      status: 400,
      param: "input[1].content[0].image_url",
      code: "invalid_url",
    });
    expect(generations(before)).toBe(asked);
  });

  it("is not fetched for a conversation's next turn", async () => {
    const { id } = await before.openai.conversations.create({ items: input });
    // A home reads its rows anew after a deletion.
    const turn = await before.openai.responses.create({ model: "simulator", input: "And?", conversation: id });
    await before.openai.responses.delete(turn.id);
    replaceUrl(id);
    const answer = await before.post({ model: "simulator", input: "And now?", conversation: id });
    await expectError(answer, { status: 400, param: "conversation", code: "invalid_url" });
  });
});

const EXTRAS = {
  priority: 3,
  kv_transfer_params: { do_remote_decode: true, remote_host: "10.0.0.1" },
  chat_template_kwargs: { style: "plain" },
  mm_processor_kwargs: { num_crops: 4 },
  vllm_xargs: { depth: 1 },
};

describe("vLLM's fields beyond sampling", () => {
  const ask = (of: Gateway, fields: object) => of.post({ model: "simulator", input: "Hello!", ...fields }, AUTHORIZED);

  it.each(Object.entries(EXTRAS))("'%s' is closed to tenants unless the operator opens it", async (field, value) => {
    const before = generations(keyed);
    for (const fields of [{}, { background: true }, { stream: true }]) {
      await expectError(await ask(keyed, { [field]: value, ...fields }), {
        status: 400,
        param: field,
        code: "unsupported_parameter",
        message: /VLLM_EXTRAS/,
      });
    }
    expect(generations(keyed)).toBe(before);
    expect((await ask(keyed, { [field]: null })).status).toBe(200);
  });

  it("are open to this machine's own user without keys", async () => {
    expect((await ask(gateway, EXTRAS)).status).toBe(200);
    expect(lastPrompt(gateway)).toMatchObject(EXTRAS);
  });

  it("are open if the operator lists them", async () => {
    const { priority, chat_template_kwargs, kv_transfer_params } = EXTRAS;
    expect((await ask(opened, { priority, chat_template_kwargs })).status).toBe(200);
    expect(lastPrompt(opened)).toMatchObject({ priority, chat_template_kwargs });
    await expectError(await ask(opened, { priority, kv_transfer_params }), {
      status: 400,
      param: "kv_transfer_params",
    });
  });

  it("do not include sampling, which is open to all", async () => {
    const sampling = { top_k: 3, min_p: 0.1, seed: 1, repetition_penalty: 1.1, logit_bias: { "1": 1 } };
    const answer = await ask(keyed, { ...sampling, cache_salt: "x", structured_outputs: { choice: ["a", "b"] } });
    expect(await answer.json()).toMatchObject({ status: "completed" });
    expect(lastPrompt(keyed)).toMatchObject(sampling);
  });
});
