import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { contentPdf, streamOf, textPdf } from "../../packages/file-text/test/corpus.ts";
import { descriptionOf } from "../conformance/api-description.ts";
import { startWorkerd } from "../workerd/process.ts";
import { expectError } from "./expectations.ts";
import { scannedPdf as pdf } from "./scanned-pdf.ts";
import { eventually, type Gateway, gatewayAt, lastPrompt } from "./support.ts";

/** Pages of PDFs as pictures, for models that see. */

const SEEING = "simulator-vision";
const BLIND = "simulator";

let gateway: Gateway;
beforeAll(async () => {
  const vllm = await serveSimulator({ models: [BLIND, SEEING] });
  const worker = await startWorkerd({
    VLLM_BASE_URL: `${vllm.url}/v1`,
    ALLOW_ANONYMOUS: "true",
    CODEX_MODELS: JSON.stringify({ [SEEING]: { input_modalities: ["text", "image"] } }),
    INPUT_FILE_MAX_PICTURES: "3",
  });
  gateway = gatewayAt(worker, vllm, await descriptionOf(worker.url));
});
afterAll(() => gateway.close());

const file = (bytes: Uint8Array, more: object = {}) => ({
  type: "input_file" as const,
  filename: "a.pdf",
  file_data: Buffer.from(bytes).toString("base64"),
  ...more,
});
const user = (...content: object[]) => [{ type: "message", role: "user", content }] as never;
const ask = (part: object, model = SEEING) => gateway.openai.responses.create({ model, input: user(part) });

type Part = { type: "text"; text: string } | { type: "image_url"; image_url: { url: string } };
const firstParts = () => (lastPrompt(gateway).messages as { content: Part[] }[])[0]?.content ?? [];
/** The texts of the prompt, and its images as the simulator describes them. */
const shown = (answer: { output_text: string }) => answer.output_text.replace("You said: ", "");

const SCAN_NOTE = "[This page has no text: it is an image.]";

describe("a model that sees", () => {
  it("is given a scanned page as a picture, and its answer shows that it has seen it", async () => {
    const answer = await ask(file(pdf([null])));
    expect(shown(answer)).toBe(`[file: a.pdf]\n[page 1]\n${SCAN_NOTE}\n[image: jpeg, 724 x 1024]`);
  });

  it("is given text and pictures in the order of the pages: those without text, with images, and with drawings", async () => {
    const strokes = "0 0 m ".concat("9 9 l 5 5 l ".repeat(60), "S");
    await ask(file(contentPdf(streamOf(new TextEncoder().encode(`${strokes} BT /F1 12 Tf (A chart) Tj ET`)))));
    expect(firstParts().map(({ type }) => type)).toEqual(["text", "image_url"]);
    await ask(file(pdf(["First", null, "Third"])));
    const parts = firstParts();
    expect(parts.map((part) => ("text" in part ? part.text : "picture"))).toEqual([
      `[file: a.pdf]\n[page 1]\nFirst\n\n[page 2]\n${SCAN_NOTE}\n\n`,
      "picture",
      "[page 3]\nThird",
    ]);
  });

  it.each([
    ["low", "543 x 768"],
    ["auto", "724 x 1024"],
    ["high", "1085 x 1536"],
  ])("sees pages at the size of detail %s", async (detail, size) => {
    expect((await ask(file(pdf([null]), { detail }))).output_text).toContain(`[image: jpeg, ${size}]`);
  });

  it("sees all pages with detail high, and pages of text alone with nothing less", async () => {
    const text = textPdf(["Only text"]);
    for (const detail of ["low", "auto"]) expect((await ask(file(text, { detail }))).output_text).not.toContain("jpeg");
    expect((await ask(file(text, { detail: "high" }))).output_text).toContain("[image: jpeg, 1187 x 1536]");
  });

  it("is told which pages it is not shown: pages without text come first", async () => {
    const answer = await ask(file(pdf(["One", "Two", null, null, null, null]), { detail: "high" }));
    expect(answer.output_text.match(/\[image: jpeg/g)).toHaveLength(3);
    expect(answer.output_text).toMatch(
      /\[Not shown as pictures: pages 1 to 2, 6, because a request has at most 3 pictures of pages\.\]$/,
    );
  });

  it("is given the same bytes in later turns and in a conversation, and the client sees what it sent", async () => {
    const part = file(pdf(["First", null]));
    const first = await ask(part);
    const before = firstParts();
    await gateway.openai.responses.create({ model: SEEING, input: "And?", previous_response_id: first.id });
    expect(firstParts()).toEqual(before);
    const { data } = await gateway.openai.responses.inputItems.list(first.id);
    expect(data[0]).toMatchObject({ content: [part] });
    expect(JSON.stringify(data)).not.toMatch(/file_pictures|image\/jpeg/);
    const conversation = await gateway.openai.conversations.create({ items: user(part) });
    await gateway.openai.responses.create({ model: SEEING, input: "And?", conversation: conversation.id });
    expect(firstParts()).toEqual(before);
    // Another model of the conversation reads the text alone.
    await gateway.openai.responses.create({ model: BLIND, input: "And?", conversation: conversation.id });
    expect(JSON.stringify(firstParts())).not.toContain("image_url");
    expect(JSON.stringify(firstParts())).toContain(SCAN_NOTE);
  });

  it("sees the pages of a file by its id, and of one in a tool's answer", async () => {
    const uploaded = new File([pdf([null]) as BlobPart], "b.pdf");
    const { id: file_id } = await gateway.openai.files.create({ file: uploaded, purpose: "user_data" });
    expect((await ask({ type: "input_file", file_id })).output_text).toContain("[image: jpeg, 724 x 1024]");
    await gateway.openai.responses.create({
      model: SEEING,
      input: [
        { type: "function_call", call_id: "call_1", name: "look", arguments: "{}" },
        { type: "function_call_output", call_id: "call_1", output: [file(pdf([null]))] as never },
      ],
    });
    expect(JSON.stringify(lastPrompt(gateway))).toContain("data:image/jpeg;base64,");
  });

  it("sees a page of any claimed size within the bound", async () => {
    const answer = await ask(file(pdf([null], "0 0 900000000 900000000")));
    expect(answer.output_text).toContain("[image: jpeg, 1024 x 1024]");
    expect((await ask(file(pdf([null], "0 0 14400 2")))).output_text).toContain("[image: jpeg, 1024 x 1]");
  });
});

describe("a model that does not see", () => {
  it("reads the text of a PDF as before, and a scan is a 400 that says what would help", async () => {
    await ask(file(pdf(["First", null])), BLIND);
    expect(firstParts()).toEqual([{ type: "text", text: `[file: a.pdf]\n[page 1]\nFirst\n\n[page 2]\n${SCAN_NOTE}` }]);
    const refused = await gateway.post({ model: BLIND, input: user(file(pdf([null]))) });
    const expected = { status: 400, param: "input[0].content[0].file_data", code: "unsupported_file" };
    await expectError(refused, { ...expected, message: /no text.*Use a model that reads images/ });
  });

  it("finds nothing of a scan in a vector store, and the file's status says what would help", async () => {
    const uploaded = new File([pdf([null]) as BlobPart], "b.pdf");
    const { id: file } = await gateway.openai.files.create({ file: uploaded, purpose: "assistants" });
    const { id: vector_store_id } = await gateway.openai.vectorStores.create({ file_ids: [file] });
    const state = () => gateway.openai.vectorStores.files.retrieve(file, { vector_store_id });
    await eventually(async () => (await state()).status === "failed");
    expect((await state()).last_error).toMatchObject({ code: "unsupported_file" });
    expect((await state()).last_error?.message).toMatch(/no text.*OCR_MODEL/);
  });
});
