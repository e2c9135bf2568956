import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { deflateSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { contentPdf, docx, paragraph, pdfOf, streamOf, textPdf } from "../../packages/file-text/test/corpus.ts";
import { expectError } from "../e2e/expectations.ts";
import { cleanUp, commandOf, newFolder, type Served, start, workerdsOf } from "../e2e/serve-support.ts";
import { eventually } from "../e2e/support.ts";
import { fetchAnew } from "../workerd/tools.ts";
import { pathologicalFiles } from "./pathological.ts";

/**
 * Files that keep the code which reads them busy for ever, or fill its memory: each costs its owner that file, and
 * nobody else anything (`cli/serve/bounded-processes.ts`). Tests order events; none looks at the clock.
 */

const KEYS = { attacker: "the-key-of-an-attacker", other: "the-key-of-another" };
type Tenant = keyof typeof KEYS;

const MIB = 1024 * 1024;

/** A PDF of one page, whose content is deflated. */
const deflatedPdf = (content: Buffer) => contentPdf(streamOf(deflateSync(content), "/Filter /FlateDecode"));

/** 656 bytes. pdf.js looks each value up in as many states of the text as are not closed. */
const UNCLOSED = deflatedPdf(Buffer.from("q ".repeat(100_000)));
const FINE = textPdf(["One fine page"]);

const TOO_LONG = /too much time to read/;

/** A model that is given pictures of pages. */
const SEEING = "simulator-reasoning";

/** A page that is soon read, since it has no text, and takes minutes to draw: a shading whose function is long, for each pixel anew. */
const ENDLESS = contentPdf(streamOf(Buffer.from("/S sh ".repeat(1_000))), "/Shading << /S 6 0 R >>", [
  "<< /ShadingType 1 /ColorSpace /DeviceRGB /Domain [0 612 0 792] /Function 7 0 R >>",
  streamOf(
    Buffer.from(`{ ${"dup mul sqrt ".repeat(2_000)} pop pop 0 0 0 }`),
    "/FunctionType 4 /Domain [0 612 0 792] /Range [0 1 0 1 0 1]",
  ),
]);

let vllm: SimulatorServer;
let variables: Record<string, string>;
let served: Served;
beforeAll(async () => {
  vllm = await serveSimulator();
  const hash = (key: string) => createHash("sha256").update(key).digest("hex");
  variables = {
    VLLM_BASE_URL: `${vllm.url}/v1`,
    API_KEYS: Object.entries(KEYS)
      .map(([tenant, key]) => `${tenant}:${hash(key)}`)
      .join(","),
    STATE_DIRECTORY: newFolder(),
    CODEX_MODELS: JSON.stringify({ [SEEING]: { input_modalities: ["text", "image"] } }),
  };
  served = await start(variables);
});
afterAll(async () => {
  cleanUp();
  await vllm.close();
});

async function call(tenant: Tenant, path: string, body?: object | FormData): Promise<Response> {
  const isForm = body instanceof FormData;
  return fetchAnew(`${served.url}/v1/${path}`, {
    method: body ? "POST" : "GET",
    headers: { authorization: `Bearer ${KEYS[tenant]}`, ...(!isForm && { "content-type": "application/json" }) },
    ...(body && { body: isForm ? body : JSON.stringify(body) }),
  });
}

async function answer<Answer>(tenant: Tenant, path: string, body?: object | FormData): Promise<Answer> {
  const response = await call(tenant, path, body);
  expect(response.status, path).toBe(200);
  return (await response.json()) as Answer;
}

/** A turn whose prompt has a file. */
const turnWith = (tenant: Tenant, bytes: Uint8Array, filename = "a.pdf", model = "simulator") =>
  call(tenant, "responses", {
    model,
    store: false,
    input: [
      {
        type: "message",
        role: "user",
        content: [{ type: "input_file", file_data: Buffer.from(bytes).toString("base64"), filename }],
      },
    ],
  });

const FIELD = "input[0].content[0].file_data";

/** Makes a vector store of a file, and waits until the file was read. */
async function storeOf(tenant: Tenant, bytes: Uint8Array, filename: string) {
  const form = new FormData();
  form.set("purpose", "assistants");
  form.set("file", new File([bytes as BlobPart], filename));
  const { id: file } = await answer<{ id: string }>(tenant, "files", form);
  const { id: store } = await answer<{ id: string }>(tenant, "vector_stores", { file_ids: [file] });
  const state = () =>
    answer<{ status: string; last_error: { code: string; message: string } | null }>(
      tenant,
      `vector_stores/${store}/files/${file}`,
    );
  await eventually(async () => (await state()).status !== "in_progress", 120_000);
  return { state, store };
}

/** The processes that read files. */
const readers = () => workerdsOf(served).filter((pid) => /bounded-\d+\.socket/.test(commandOf(pid)));

/** The number of connections that processes have got, as Linux lists them by the paths of their sockets. */
function connectionsOf(pids: readonly number[]): number {
  const paths = pids.map((pid) => /\/\S+\/bounded-\d+\.socket/.exec(commandOf(pid).replaceAll("\0", " "))?.[0]);
  const lines = readFileSync("/proc/net/unix", "utf8").split("\n");
  return lines.filter((line) => paths.some((path) => path !== undefined && line.endsWith(path))).length - pids.length;
}

const isThere = (pid: number) => existsSync(`/proc/${pid}/cmdline`) && commandOf(pid) !== "";

/** The times that the log says how a process that reads files has ended. */
const ends = (reason: string) => served.output().split(`"reason":"${reason}"`).length - 1;

/** Stops the processes in the middle of a file: the file was given to one of them. Then acts, and gives the file's answer. */
async function inTheMiddle(act: (pids: number[]) => Promise<void> | void): Promise<Response> {
  expect((await turnWith("other", FINE)).status).toBe(200);
  await eventually(() => readers().length >= 2);
  const pids = readers();
  for (const pid of pids) process.kill(pid, "SIGSTOP");
  const turn = turnWith("other", textPdf(["Read to its end", "", "and again"]), "again.pdf");
  await eventually(() => connectionsOf(pids) > 0);
  await act(pids);
  return turn;
}

const promptHas = (text: string) =>
  vllm.simulator.requests.some(({ body }) => JSON.stringify(body)?.includes(JSON.stringify(text).slice(1, -1)));

describe("a file that is never read to its end", () => {
  it("is a 400 that says why, and meanwhile another tenant's turns and files are answered", async () => {
    expect((await turnWith("other", FINE)).status).toBe(200);
    const order: string[] = [];
    const attack = turnWith("attacker", UNCLOSED).then((response) => {
      order.push("the attacker's");
      return response;
    });
    for (let turn = 0; turn < 3; turn += 1) {
      await answer("other", "responses", { model: "simulator", input: "Hello!", store: false });
      expect((await turnWith("other", FINE)).status).toBe(200);
    }
    order.push("another's");
    await expectError(await attack, { status: 400, param: FIELD, code: "file_too_large", message: TOO_LONG });
    expect(order).toEqual(["another's", "the attacker's"]);
  });

  it("fails in a vector store, for good: no later process reads it", async () => {
    const { state, store } = await storeOf("attacker", UNCLOSED, "unclosed.pdf");
    const failed = await state();
    expect(failed).toMatchObject({ status: "failed", last_error: { code: "invalid_file" } });
    expect(failed.last_error?.message).toMatch(TOO_LONG);
    served.child.kill("SIGKILL");
    await served.exited;
    served = await start(variables);
    const { store: second } = await storeOf("other", FINE, "fine.pdf");
    const found = await answer<{ data: object[] }>("other", `vector_stores/${second}/search`, { query: "fine" });
    expect(found.data).toHaveLength(1);
    expect(await state()).toEqual(failed);
    expect(await answer("attacker", `vector_stores/${store}`)).toMatchObject({ file_counts: { failed: 1 } });
    expect(ends("time")).toBe(0);
  });
});

describe("a page that is never drawn to its end", () => {
  it("costs its owner the picture, and meanwhile another tenant's files are read and drawn", async () => {
    expect((await turnWith("other", FINE)).status).toBe(200);
    const order: string[] = [];
    const attack = turnWith("attacker", ENDLESS, "endless.pdf", SEEING).then((response) => {
      order.push("the attacker's");
      return response;
    });
    const scan = contentPdf(streamOf(Buffer.from("BI /W 1 /H 1 /CS /G /BPC 8 ID a EI")));
    for (let turn = 0; turn < 3; turn += 1) {
      expect((await turnWith("other", scan, "scan.pdf", SEEING)).status).toBe(200);
    }
    order.push("another's");
    const message = /no text.*Not shown as pictures: page 1, because drawing/;
    await expectError(await attack, { status: 400, param: FIELD, code: "unsupported_file", message });
    expect(order).toEqual(["another's", "the attacker's"]);
    const { body } = vllm.simulator.requests.findLast(({ path }) => path.endsWith("chat/completions")) ?? {};
    expect(JSON.stringify(body)).toContain("data:image/jpeg;base64,");
  });
});

/** Files that expand a thousandfold, or say a little very often. */
const BOMBS: [what: string, bytes: () => Uint8Array, name: string][] = [
  ["a stream of zeros", () => deflatedPdf(Buffer.alloc(300 * MIB)), "a.pdf"],
  ["a stream of text", () => deflatedPdf(Buffer.from(`BT /F1 9 Tf ${"(text) Tj ".repeat(10 * MIB)} ET`)), "a.pdf"],
  [
    "a page of a million content streams",
    () =>
      pdfOf([
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents [${"4 0 R ".repeat(1_000_000)}] >>`,
        streamOf(Buffer.from("q Q")),
      ]),
    "a.pdf",
  ],
  ["a document of one word", () => docx(paragraph("x".repeat(100 * MIB))), "a.docx"],
];

describe("a file that expands", () => {
  it.each(BOMBS)("is a 400, and the gateway's process holds no part of it: %s", async (_, bytes, name) => {
    const file = bytes();
    const [gateway = 0] = workerdsOf(served);
    const peak = () => Number(/^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${gateway}/status`, "utf8"))?.[1]) / 1024;
    const before = peak();
    await expectError(await turnWith("attacker", file, name), { status: 400, param: FIELD });
    expect(peak() - before).toBeLessThan(100 + (10 * file.length) / MIB);
    expect((await turnWith("other", FINE)).status).toBe(200);
  });
});

describe("a pathological file of each kind", () => {
  it("is read, or refused by its field, and the gateway's process serves others", async () => {
    const [gateway] = workerdsOf(served);
    const kinds = pathologicalFiles().filter(({ name }) => / × (100|1)$/.test(name));
    expect(kinds.length).toBeGreaterThan(70);
    for (const { name, filename, bytes } of kinds) {
      const turn = await turnWith("attacker", bytes(), filename);
      const { error } = (await turn.json()) as { error?: { param: string } };
      expect([200, 400], `${name}: ${JSON.stringify(error)}`).toContain(turn.status);
      if (error) expect(error.param, name).toBe(FIELD);
    }
    expect((await turnWith("other", FINE)).status).toBe(200);
    expect(workerdsOf(served)[0]).toBe(gateway);
  });
});

describe("a process that reads files", () => {
  it("dies in the middle: another one reads the file", async () => {
    const before = ends("died");
    const turn = await inTheMiddle((pids) => {
      for (const pid of pids) process.kill(pid, "SIGKILL");
    });
    expect(turn.status).toBe(200);
    expect(promptHas("[file: again.pdf]\n[page 1]\nRead to its end\n\n[page 3]\nand again")).toBe(true);
    expect(ends("died")).toBeGreaterThan(before);
  });

  it("goes on with its file while the gateway is reloaded", async () => {
    const before = ends("died");
    const turn = await inTheMiddle(async (pids) => {
      served.child.kill("SIGHUP");
      await eventually(() => served.output().includes("Another process serves"), 30_000);
      for (const pid of pids) process.kill(pid, "SIGCONT");
    });
    expect(turn.status).toBe(200);
    expect(ends("died")).toBe(before);
  });

  it("has no variables, and ends with its launcher, also when that is killed", async () => {
    expect((await turnWith("other", FINE)).status).toBe(200);
    const pids = workerdsOf(served);
    const own = readers();
    expect(own.length).toBeGreaterThan(0);
    for (const pid of own) expect(readFileSync(`/proc/${pid}/environ`, "utf8")).toBe("");
    served.child.kill("SIGKILL");
    await served.exited;
    await eventually(() => !pids.some(isThere), 30_000);
  });
});
