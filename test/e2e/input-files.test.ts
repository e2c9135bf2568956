import { createHash } from "node:crypto";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { docx, paragraph, pptx, textPdf, xlsx } from "../../packages/file-text/test/corpus.ts";
import { expectError } from "./expectations.ts";
import { eventually, type Gateway, lastPrompt, startGateway } from "./support.ts";

/** Files and images in a request: the text that the model reads, and their storage. */

const KEYS = { one: "the-key-of-one", other: "the-key-of-another" };

/** The files of the file server, by path. */
const served = new Map<string, { body: Uint8Array | string; type?: string; status?: number; location?: string }>();
/** The requested paths. */
const asked: string[] = [];

let server: Server;
let site: string;
let gateway: Gateway;
beforeAll(async () => {
  server = createServer((request, response) => {
    const path = request.url ?? "/";
    asked.push(path);
    const {
      body = "",
      type = "application/octet-stream",
      status = 200,
      location,
    } = served.get(path) ?? { status: 404 };
    response.writeHead(status, { "content-type": type, ...(location !== undefined && { location }) }).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  site = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const keys = Object.entries(KEYS).map(
    ([tenant, key]) => `${tenant}:${createHash("sha256").update(key).digest("hex")}`,
  );
  gateway = await startGateway(
    {
      API_KEYS: keys.join(","),
      MCP_SERVERS: `${site}/public`,
      INPUT_FILE_MAX_BYTES: String(MAX_BYTES),
      INPUT_FILE_MAX_TEXT: String(MAX_TEXT),
      INPUT_FILE_MAX_PAGES: "20",
      INPUT_IMAGE_MAX_BYTES: String(MAX_BYTES),
    },
    true,
  );
});
afterAll(async () => {
  await gateway.close();
  server.close();
});

const MAX_BYTES = 1024 * 1024;
const MAX_TEXT = 64 * 1024;

const client = (key = KEYS.one) => gateway.client({ apiKey: key });
const authorization = `Bearer ${KEYS.one}`;
const base64 = (bytes: Uint8Array | string) => Buffer.from(bytes).toString("base64");
const text = { type: "input_text", text: "Read." };
const user = (...content: object[]) => [{ type: "message", role: "user", content }] as never;
const post = (input: unknown, fields: object = {}) =>
  gateway.post({ model: "simulator", input, ...fields }, { authorization });

/** Puts a file onto the server that the gateway may use. */
function serve(path: string, body: Uint8Array | string, type?: string): string {
  served.set(`/public/${path}`, { body, ...(type !== undefined && { type }) });
  return `${site}/public/${path}`;
}

const timesAsked = (path: string) => asked.filter((each) => each === `/public/${path}`).length;

const upload = (bytes: Uint8Array | string, name: string, key = KEYS.one) =>
  client(key).files.create({ file: new File([bytes as BlobPart], name), purpose: "user_data" });

/** The parts of the last message of the last prompt. */
function lastParts(): unknown {
  return (lastPrompt(gateway).messages as { content: unknown }[]).at(-1)?.content;
}

/** The parts of the first user's message of the last prompt. */
function firstParts(): unknown {
  return (lastPrompt(gateway).messages as { role: string; content: unknown }[]).find(({ role }) => role === "user")
    ?.content;
}

const PDF = textPdf(["First page", "", "Third page"]);
const PDF_TEXT = "[file: report.pdf]\n[page 1]\nFirst page\n\n[page 3]\nThird page";

const FORMATS: [format: string, name: string, bytes: Uint8Array | string, type: string, read: string][] = [
  ["a PDF, page by page", "report.pdf", PDF, "application/pdf", PDF_TEXT],
  [
    "a document",
    "a.docx",
    docx(paragraph("Title", "Heading1") + paragraph("Text")),
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "[file: a.docx]\n# Title\nText",
  ],
  [
    "a workbook, sheet by sheet",
    "a.xlsx",
    xlsx({ One: '<row><c r="A1"><v>1</v></c></row>' }),
    "application/octet-stream",
    "[file: a.xlsx]\n[page 1]\n# One\n1",
  ],
  [
    "a presentation, slide by slide",
    "a.pptx",
    pptx(["one", "two"]),
    "application/octet-stream",
    "[file: a.pptx]\n[page 1]\none\n\n[page 2]\ntwo",
  ],
  [
    "a page of the web",
    "a.html",
    "<title>T</title><h1>H</h1><script>x</script>",
    "text/html",
    "[file: a.html]\nT\n\n# H",
  ],
  ["a PDF that is called a text", "a.txt", PDF, "text/plain", PDF_TEXT.replace("report.pdf", "a.txt")],
  ["code without a type", "a.py", "print('ü')\n", "application/octet-stream", "[file: a.py]\nprint('ü')"],
];

describe("a file", () => {
  it.each(FORMATS)("is read: %s", async (_, filename, bytes, type, read) => {
    const file_url = serve(filename, bytes, type);
    const { id: file_id } = await upload(bytes, filename);
    const data = [`data:${type};base64,${base64(bytes)}`, base64(bytes)];
    for (const source of [
      { file_data: data[0], filename },
      { file_data: data[1], filename },
      { file_url },
      { file_id },
    ]) {
      await client().responses.create({ model: "simulator", input: user({ type: "input_file", ...source }, text) });
      expect(lastParts(), Object.keys(source)[0]).toEqual([
        { type: "text", text: read },
        { type: "text", text: "Read." },
      ]);
    }
  });

  it("is shown to the client unchanged", async () => {
    const file_url = serve("report.pdf", PDF);
    const { id: file_id } = await upload(PDF, "report.pdf");
    const parts = [
      { type: "input_file", file_url },
      { type: "input_file", file_id },
      { type: "input_file", file_data: base64(PDF), filename: "report.pdf" },
    ];
    const { id } = await client().responses.create({ model: "simulator", input: user(...parts, text) });
    const [item] = (await client().responses.inputItems.list(id)).data;
    expect(item).toMatchObject({ content: [...parts, text] });
    expect(JSON.stringify(item)).not.toContain("First page");
  });

  it("by its URL is fetched once: later turns have the same text, also after the file has changed", async () => {
    const file_url = serve("changing.txt", "before", "text/plain");
    const input = user({ type: "input_file", file_url });
    const first = await client().responses.create({ model: "simulator", input });
    serve("changing.txt", "after", "text/plain");
    await client().responses.create({ model: "simulator", input: "And?", previous_response_id: first.id });
    expect(firstParts()).toEqual([{ type: "text", text: "[file: changing.txt]\nbefore" }]);
    served.delete("/public/changing.txt");
    const [item] = (await client().responses.inputItems.list(first.id)).data;
    await client().responses.create({ model: "simulator", input: [{ type: "item_reference", id: item?.id ?? "" }] });
    expect(firstParts()).toEqual([{ type: "text", text: "[file: changing.txt]\nbefore" }]);
    expect(timesAsked("changing.txt")).toBe(1);
  });

  it("by its id belongs to its tenant, and stays in turns that have read it", async () => {
    const { id: file_id } = await upload(PDF, "report.pdf");
    const input = user({ type: "input_file", file_id });
    const first = await client().responses.create({ model: "simulator", input });
    const param = "input[0].content[0].file_id";
    const others = await gateway.post({ model: "simulator", input }, { authorization: `Bearer ${KEYS.other}` });
    await expectError(others, { status: 400, param, code: "file_not_found" });
    await client().files.delete(file_id);
    await expectError(await post(input), { status: 400, param, code: "file_not_found" });
    await client().responses.create({ model: "simulator", input: "And?", previous_response_id: first.id });
    expect(firstParts()).toEqual([{ type: "text", text: PDF_TEXT }]);
  });

  it("is read for gpt-oss and in a tool's answer, and counts by its text", async () => {
    const file_data = base64(PDF);
    const file = { type: "input_file", file_data, filename: "report.pdf" };
    const model = "simulator-gpt-oss";
    const input = user(file, text);
    const { usage } = await client().responses.create({ model, input });
    expect(await client().responses.inputTokens.count({ model, input })).toMatchObject({
      input_tokens: usage?.input_tokens,
    });
    expect((await client().responses.inputTokens.count({ model, input: user(text) })).input_tokens).toBeLessThan(
      (usage?.input_tokens ?? 0) - 15,
    );
    await client().responses.create({
      model: "simulator",
      input: [
        { type: "function_call", call_id: "call_1", name: "look", arguments: "{}" },
        { type: "function_call_output", call_id: "call_1", output: [file, text] as never },
      ],
    });
    expect(JSON.stringify(lastPrompt(gateway))).toContain("Third page");
  });

  it("is read in the background, under an idempotency key, and in a conversation", async () => {
    const file_url = serve("once.txt", "the text", "text/plain");
    const input = user({ type: "input_file", file_url });
    const read = [{ type: "text", text: "[file: once.txt]\nthe text" }];
    const { id } = await client().responses.create({ model: "simulator", input, background: true });
    await eventually(async () => (await client().responses.retrieve(id)).status === "completed");
    expect(lastParts()).toEqual(read);
    expect(timesAsked("once.txt")).toBe(1);
    const headers = { authorization, "idempotency-key": "key-of-files" };
    const send = () => gateway.post({ model: "simulator", input }, headers);
    const first = (await (await send()).json()) as { id: string };
    served.delete("/public/once.txt");
    expect(await (await send()).json()).toMatchObject({ id: first.id });
    expect(timesAsked("once.txt")).toBe(2);

    serve("once.txt", "the text", "text/plain");
    const conversation = await client().conversations.create({ items: input });
    served.delete("/public/once.txt");
    await client().responses.create({ model: "simulator", input: "And?", conversation: conversation.id });
    expect(firstParts()).toEqual(read);
    const items = await client().conversations.items.list(conversation.id, { order: "asc" });
    expect(items.data[0]).toMatchObject({ content: [{ type: "input_file", file_url }] });
    expect(JSON.stringify(items.data)).not.toContain("the text");
  });

  it("stays in a message that a compaction keeps", async () => {
    const file_url = serve("kept.txt", "the kept text", "text/plain");
    const compacted = await client().responses.compact({
      model: "simulator",
      input: user({ type: "input_file", file_url }, text),
    });
    expect(compacted.output[0]).toMatchObject({ content: [{ type: "input_file", file_url }, text] });
    expect(JSON.stringify(compacted.output[0])).not.toContain("the kept text");
  });
});

const REFUSED: [what: string, part: () => object, field: string, code: string, message?: RegExp][] = [
  ["a scanned PDF", () => ({ file_data: base64(textPdf(["", ""])) }), "file_data", "unsupported_file", /no text/],
  ["a damaged PDF", () => ({ file_data: base64("%PDF-1.7\nnothing") }), "file_data", "invalid_file"],
  ["what is neither", () => ({ file_data: base64(new Uint8Array(100)) }), "file_data", "unsupported_file"],
  ["a data URL that is not base64", () => ({ file_data: "data:application/pdf,x" }), "file_data", "invalid_value"],
  ["too many pages", () => ({ file_data: base64(textPdf(Array(21).fill("x"))) }), "file_data", "file_too_large"],
  ["too many bytes", () => ({ file_url: serve("large", "x".repeat(MAX_BYTES + 1)) }), "file_url", "file_too_large"],
  ["too much text", () => ({ file_url: serve("long", "x".repeat(MAX_TEXT + 1)) }), "file_url", "file_too_large"],
  ["a file that is not there", () => ({ file_url: `${site}/public/none` }), "file_url", "invalid_value", /404/],
  ["an address that is not listed", () => ({ file_url: `${site}/private` }), "file_url", "invalid_url"],
  ["the metadata of a cloud", () => ({ file_url: "http://169.254.169.254/latest" }), "file_url", "invalid_url"],
  ["what is no address", () => ({ file_url: "file:///etc/passwd" }), "file_url", "invalid_url"],
  [
    "a redirect to what is not listed",
    () => {
      served.set("/public/away", { body: "", status: 302, location: `${site}/private` });
      return { file_url: `${site}/public/away` };
    },
    "file_url",
    "invalid_url",
  ],
  ["an unknown id", () => ({ file_id: "file-0000000000000000000000" }), "file_id", "file_not_found"],
  ["what is no id", () => ({ file_id: "../../etc" }), "file_id", "file_not_found"],
];

describe("a file that cannot be read is a 400 that names its field", () => {
  it.each(REFUSED)("%s", async (_, part, field, code, message = /./) => {
    const before = gateway.vllm.simulator.requests.length;
    const input = [...(user(text) as object[]), ...(user(text, { type: "input_file", ...part() }) as object[])];
    const param = `input[1].content[1].${field}`;
    for (const fields of [{}, { stream: true }, { background: true }]) {
      await expectError(await post(input, fields), { status: 400, param, code, message });
    }
    const items = await gateway.fetch(`${gateway.url}/v1/conversations`, {
      method: "POST",
      headers: { authorization, "content-type": "application/json" },
      body: JSON.stringify({ items: input }),
    });
    await expectError(items, { status: 400, param: param.replace("input", "items"), code });
    const generations = gateway.vllm.simulator.requests
      .slice(before)
      .filter(({ path }) => path.endsWith("completions"));
    expect(generations).toEqual([]);
    expect(asked).not.toContain("/private");
  });

  it("too many files in a request", async () => {
    const input = user(...Array.from({ length: 33 }, () => ({ type: "input_file", file_url: `${site}/public/many` })));
    await expectError(await post(input), { status: 400, param: "input" });
    expect(timesAsked("many")).toBe(0);
  });

  it("files that are together too long", async () => {
    const file_url = serve("half", "x".repeat(MAX_TEXT / 2 + 1));
    const part = { type: "input_file", file_url };
    await expectError(await post(user(part, part)), { status: 400, param: "input[0].content[1].file_url" });
  });
});

describe("an image by its id", () => {
  const PNG = Buffer.from(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    "base64",
  );
  const image = {
    type: "image_url",
    image_url: { url: `data:image/png;base64,${PNG.toString("base64")}`, detail: "auto" },
  };

  it("goes to the model server as a data URL, and is shown by its id", async () => {
    const { id: file_id } = await upload(PNG, "a.png");
    const input = user({ type: "input_image", file_id, detail: "auto" }, text);
    const { id } = await client().responses.create({ model: "simulator", input });
    expect(lastParts()).toEqual([image, { type: "text", text: "Read." }]);
    await client().files.delete(file_id);
    await client().responses.create({ model: "simulator", input: "And?", previous_response_id: id });
    expect(firstParts()).toEqual([image, { type: "text", text: "Read." }]);
    const [item] = (await client().responses.inputItems.list(id)).data;
    expect(item).toMatchObject({ content: [{ type: "input_image", file_id, detail: "auto" }, text] });
    expect(JSON.stringify(item)).not.toContain("data:image");
  });

  it("is a 400 if it is invalid, does not exist, or is too large", async () => {
    const param = "input[0].content[0].file_id";
    const refuse = async (file_id: string, code: string) => {
      const input = user({ type: "input_image", file_id });
      await expectError(await post(input), { status: 400, param, code });
    };
    await refuse((await upload("no image", "a.png")).id, "invalid_image");
    await refuse((await upload(Buffer.concat([PNG, Buffer.alloc(MAX_BYTES)]), "a.png")).id, "file_too_large");
    await refuse((await upload(PNG, "a.png", KEYS.other)).id, "file_not_found");
    await refuse("file-none", "file_not_found");
  });
});
