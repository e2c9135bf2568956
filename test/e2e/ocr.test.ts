import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { descriptionOf } from "../conformance/api-description.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { expectError } from "./expectations.ts";
import { scannedPdf } from "./scanned-pdf.ts";
import { eventually, type Gateway, gatewayAt, lastPrompt } from "./support.ts";

/** Scanned pages whose text a model reads from their pictures (`OCR_MODEL`). */

/** A model server that reads pictures: it answers with a name for each, as soon as it may. */
let server: Server;
/** The pictures that it was asked for, in order. */
let asked: string[] = [];
let status = 200;
/** Answers to come, while it is held. */
let held: ServerResponse[] | undefined;

let worker: WorkerdProcess;
let gateway: Gateway;
beforeAll(async () => {
  server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    response.setHeader("content-type", "application/json");
    if (!request.url?.endsWith("/chat/completions")) {
      const card = { id: "ocr", object: "model", created: 0, owned_by: "vllm" };
      return void response.end(JSON.stringify({ object: "list", data: [card] }));
    }
    const [, picture = ""] = /data:image\/jpeg;base64,([^"]+)/.exec(body) ?? [];
    const name = `picture ${createHash("sha256").update(picture).digest("hex").slice(0, 8)}`;
    asked.push(name);
    response.statusCode = status;
    const message = { role: "assistant", content: name };
    const text = JSON.stringify({ choices: [{ index: 0, message, finish_reason: "stop" }] });
    if (!held) return void response.end(text);
    held.push(response);
    once(response, "release").then(() => response.end(text));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const vllm = await serveSimulator();
  const variables = {
    UPSTREAMS: JSON.stringify([
      { name: "chat", url: `${vllm.url}/v1` },
      { name: "ocr", url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`, dialect: "vllm" },
    ]),
    ALLOW_ANONYMOUS: "true",
    OCR_MODEL: "ocr",
    OCR_MAX_PAGES: "6",
  };
  worker = await startWorkerd(variables, { through: "serve" });
  gateway = gatewayAt(worker, vllm, await descriptionOf(worker.url));
});
afterAll(async () => {
  await gateway.close();
  server.closeAllConnections();
  server.close();
});
beforeEach(() => {
  asked = [];
  status = 200;
  held = undefined;
});

const bodyWith = (bytes: Uint8Array) => ({
  model: "simulator",
  input: [
    {
      type: "message",
      role: "user",
      content: [{ type: "input_file", filename: "a.pdf", file_data: Buffer.from(bytes).toString("base64") }],
    },
  ],
});
const post = (bytes: Uint8Array) => gateway.post(bodyWith(bytes));
const prompt = () => (lastPrompt(gateway).messages as { content: { text: string }[] }[])[0]?.content[0]?.text;

describe("a model that does not see", () => {
  it("reads the text of scanned pages, marked as read from pictures, and of the others as it stands in the file", async () => {
    const first = (await (await post(scannedPdf([10, "Second", 30]))).json()) as { id: string };
    const [one, three] = asked;
    const read = `[file: a.pdf]
[page 1]
[Read from a picture of this page:]
${one}

[page 2]
Second

[page 3]
[Read from a picture of this page:]
${three}`;
    expect([
      prompt(),
      prompt()?.replaceAll(`${one}`, "#").replaceAll(`${three}`, `${one}`).replaceAll("#", `${three}`),
    ]).toContain(read);
    expect(asked).toHaveLength(2);
    const before = prompt();
    await gateway.post({ model: "simulator", input: "And?", previous_response_id: first.id });
    expect(prompt()).toBe(before);
    expect(asked).toHaveLength(2);
  });

  it("is told how many pages were not read", async () => {
    expect((await post(scannedPdf([1, 2, 3, 4, 5, 6, 7, 8]))).status).toBe(200);
    expect(asked).toHaveLength(6);
    expect(prompt()).toMatch(
      /\[2 further pages without text were not read from their pictures: the bound is 6 pages\.\]$/,
    );
  });

  it("is asked nothing while the model that reads pictures does not answer, and the request is a 503 to be repeated", async () => {
    status = 503;
    const before = gateway.vllm.simulator.requests.length;
    await expectError(await post(scannedPdf([1])), { status: 503, code: "ocr_unavailable" });
    expect(gateway.vllm.simulator.requests.slice(before)).toEqual([]);
    status = 400;
    const refused = {
      status: 400,
      param: "input[0].content[0].file_data",
      code: "unsupported_file",
      message: /no text/,
    };
    await expectError(await post(scannedPdf([1])), refused);
  });

  it("has nothing more read for it once its client has left", async () => {
    held = [];
    const client = new AbortController();
    const left = fetch(`${gateway.url}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(bodyWith(scannedPdf([1, 2, 3, 4, 5, 6]))),
      signal: client.signal,
    }).catch(() => undefined);
    await eventually(() => held?.length === 4);
    const closed = Promise.all((held ?? []).map((response) => once(response, "close")));
    client.abort();
    await Promise.all([left, closed]);
    expect(asked).toHaveLength(4);
  });
});

/** The pages of files that are stored before their file was read to its end. */
const keptPages = () =>
  worker.fileBytes.ids().flatMap((id) => worker.fileBytes.exec(id, "SELECT number FROM page WHERE seq < 0"));

describe("a vector store", () => {
  it("finds the text of scanned pages; a kill in the middle costs no page a second time but those in progress", async () => {
    const openai = gateway.client({});
    const uploaded = new File([scannedPdf([11, 22, 33, 44, 55, 66]) as BlobPart], "scans.pdf");
    const { id: file } = await openai.files.create({ file: uploaded, purpose: "assistants" });
    held = [];
    const { id: store } = await openai.vectorStores.create({ file_ids: [file] });
    await eventually(() => held?.length === 4);
    const [first] = asked;
    held[0]?.emit("release");
    await eventually(() => held?.[0]?.writableFinished);
    // The text is stored once it has come.
    await eventually(() => keptPages().length === 1);
    await worker.kill();
    worker.passTime(60_000);
    held = undefined;
    await worker.restart();
    const status = async () => (await openai.vectorStores.files.retrieve(file, { vector_store_id: store })).status;
    await eventually(async () => (await status()) === "completed");
    const pages = new Set(asked);
    expect(pages.size).toBe(6);
    expect(asked.filter((each) => each === first)).toHaveLength(1);
    expect(asked.length).toBeLessThanOrEqual(6 + 3);
    for (const name of pages) {
      const { data } = await openai.vectorStores.search(store, { query: name });
      expect(JSON.stringify(data)).toContain(name);
    }
  });
});
