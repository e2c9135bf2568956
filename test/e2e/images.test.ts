import { createOpenAI } from "@ai-sdk/openai";
import { Agent, imageGenerationTool, OpenAIResponsesModel, Runner } from "@openai/agents";
import { generateText } from "ai";
import type OpenAI from "openai";
import { toFile } from "openai";
import type { ResponseCreateParamsNonStreaming, ResponseInputItem, Tool } from "openai/resources/responses/responses";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { decodePng, encodePng } from "../../dev/image-server/png.ts";
import { type AskedImage, type ImageServer, type OtherAnswer, serveImages } from "../../dev/image-server/server.ts";
import { lastTurns } from "./harmony-support.ts";
import { ask as admin, makeKey, startWithKeys } from "./key-support.ts";
import { eventually, type Gateway } from "./support.ts";
import { ask, EVERY_WAY, givenBack, onlyItem, REPEATER, scripts, written } from "./tool-support.ts";

/** The tool `image_generation`, and the image servers' own routes, in front of a server that really draws. */

let painter: ImageServer;
let gateway: Gateway;
/** Answers instead of drawings. */
let other: ((asked: AskedImage) => OtherAnswer | Promise<OtherAnswer>) | undefined;
let openai: OpenAI;
let stranger: OpenAI;

beforeAll(async () => {
  painter = await serveImages({ answer: (asked) => other?.(asked) });
  gateway = await startWithKeys({
    IMAGE_MODEL: "painter",
    IMAGE_BASE_URL: `${painter.url}/v1`,
    IMAGE_API_KEY: "painters-key",
    IMAGE_QUALITY_STEPS: '{"low":4}',
    MODEL_ALIASES: '{"gpt-image-2":"painter"}',
    PASSTHROUGH_ENDPOINTS: "images/generations,images/edits",
  });
  openai = gateway.client({ apiKey: (await makeKey(gateway, "acme")).value });
  stranger = gateway.client({ apiKey: (await makeKey(gateway, "other")).value });
});
afterAll(async () => {
  await gateway?.close();
  await painter?.close();
});
afterEach(() => {
  other = undefined;
});

const tool = (fields: object = {}): Tool => ({ type: "image_generation", size: "64x64", ...fields }) as Tool;
const call = (args: object) => written("image_generation", JSON.stringify(args));
const SAYS = "<|channel|>final<|message|>Here it is.<|return|>";

/** A request in which gpt-oss makes these calls, one in each round. */
const calls = (...all: object[]): Pick<ResponseCreateParamsNonStreaming, "model" | "input"> => ({
  model: REPEATER,
  input: scripts(...all.map(call), SAYS),
});

type Item = ReturnType<typeof imageOf>;
function imageOf(response: Parameters<typeof onlyItem>[0]) {
  return onlyItem(response, "image_generation_call") as ReturnType<typeof onlyItem<"image_generation_call">> & {
    file_id?: string;
  };
}

function rasterOf({ result }: Pick<Item, "result">) {
  const raster = decodePng(Buffer.from(result ?? "", "base64"));
  if (!raster) throw new Error("It is no image.");
  return raster;
}

/** The colour in the middle of an image. */
function middleOf(item: Pick<Item, "result">): number[] {
  const { width, height, pixels } = rasterOf(item);
  const at = ((height >> 1) * width + (width >> 1)) * 4;
  return [...pixels.subarray(at, at + 4)];
}

const RED = [215, 40, 45, 255];
const BLUE = [40, 90, 210, 255];

/** Requests in which each engine's model draws once. */
const ASKED: Record<string, Pick<ResponseCreateParamsNonStreaming, "model" | "input">> = {
  simulator: { model: "simulator", input: "Use image_generation, please." },
};

describe.each(EVERY_WAY)("%s, asked as %s", (model, way) => {
  it("draws an image, with OpenAI's item and events; it is stored as a file, and read back", async () => {
    const asked = ASKED[model] ?? calls({ prompt: "a red circle" });
    // The simulated chat model fills in the names of parameters.
    const prompt = ASKED[model] ? "prompt" : "a red circle";
    const body = { ...asked, tools: [tool({ action: "generate" })] };
    const { response, events } = await ask(gateway, way, body, openai);
    expect(response.status).toBe("completed");
    const item = imageOf(response);
    expect(item).toEqual({
      id: expect.stringMatching(/^ig_/),
      type: "image_generation_call",
      status: "completed",
      result: expect.any(String),
      action: "generate",
      background: "auto",
      file_id: expect.stringMatching(/^file-/),
      output_format: "png",
      quality: "auto",
      revised_prompt: prompt,
      size: "64x64",
    });
    expect(rasterOf(item)).toMatchObject({ width: 64, height: 64 });
    if (!ASKED[model]) expect(middleOf(item)).toEqual(RED);
    expect(response.tool_usage?.image_gen).toMatchObject({ total_tokens: 0 });
    const seen = painter.asked.at(-1);
    expect(seen?.headers.authorization).toBe("Bearer painters-key");
    expect(seen?.fields).toEqual({
      model: "painter",
      prompt,
      n: 1,
      size: "64x64",
      output_format: "png",
      response_format: "b64_json",
    });
    const stored = await openai.responses.retrieve(response.id);
    expect(stored.output).toEqual(response.output);
    const file = await openai.files.retrieve(item.file_id ?? "");
    expect(file).toMatchObject({ purpose: "assistants_output", filename: `${item.id}.png` });
    expect((file.expires_at ?? 0) - file.created_at).toBe(30 * 86_400);
    const bytes = Buffer.from(await (await openai.files.content(file.id)).arrayBuffer());
    expect(bytes.toString("base64")).toBe(item.result);
    if (way !== "stream") return;
    const own = events.filter((event) => "item_id" in event && event.item_id === item.id).map(({ type }) => type);
    expect(own).toEqual(
      ["in_progress", "generating", "completed"].map((each) => `response.image_generation_call.${each}`),
    );
  });
});

describe("a later turn", () => {
  it("has a line about the image instead of the image; the model edits it without naming it", async () => {
    const first = await openai.responses.create({ ...calls({ prompt: "a red circle" }), tools: [tool()] });
    const id = imageOf(first).id;
    const next = await openai.responses.create({
      ...calls({ prompt: "a blue circle", action: "edit" }),
      tools: [tool()],
      previous_response_id: first.id,
    });
    const told = (await lastTurns(gateway)).join("\n");
    expect(told).toContain(`The image ${id} was made (64x64 png).`);
    expect(told).not.toContain(imageOf(first).result);
    const seen = painter.asked.at(-1);
    expect(seen?.path).toBe("/v1/images/edits");
    expect(seen?.images.map((bytes) => bytes.toString("base64"))).toEqual([imageOf(first).result]);
    expect(imageOf(next)).toMatchObject({ action: "edit", size: "64x64" });
    expect(middleOf(imageOf(next))).toEqual(BLUE);
  });

  it("does not grow by images", async () => {
    const first = await openai.responses.create({
      ...calls({ prompt: "a ring" }, { prompt: "a square" }),
      tools: [tool({ size: "1024x1024" })],
    });
    expect(first.output.filter(({ type }) => type === "image_generation_call")).toHaveLength(2);
    const counted = await openai.responses.inputTokens.count({
      model: "simulator",
      input: "And?",
      previous_response_id: first.id,
    });
    expect(counted.input_tokens).toBeLessThan(1_000);
  });

  it("continues after images that are together larger than the limit of a history", async () => {
    // Checking so much JSON takes longer than making it.
    const unchecked = gateway.client({ apiKey: openai.apiKey, fetch: globalThis.fetch });
    const pixels = new Uint8Array(1050 * 1050 * 4);
    for (let at = 0; at < pixels.length; at += 65_536) crypto.getRandomValues(pixels.subarray(at, at + 65_536));
    const noise = encodePng({ width: 1050, height: 1050, pixels }).toString("base64");
    other = () => ({ body: { data: [{ b64_json: noise }] } });
    const many = Array.from({ length: 3 }, (_, at) => ({ prompt: `noise ${at}` }));
    const first = await unchecked.responses.create({ ...calls(...many), tools: [tool({ action: "generate" })] });
    expect(first.output.filter((item) => item.type === "image_generation_call" && item.result === noise)).toHaveLength(
      3,
    );
    const next = await unchecked.responses.create({
      ...calls({ prompt: "the last", action: "edit" }),
      tools: [tool()],
      previous_response_id: first.id,
    });
    expect(imageOf(next).status).toBe("completed");
    expect(painter.asked.at(-1)?.images[0]?.toString("base64")).toBe(noise);
  });

  it("names an earlier image by its call's id, alone or in an item", async () => {
    const first = await openai.responses.create({ ...calls({ prompt: "a red circle" }), tools: [tool()] });
    const second = await openai.responses.create({ ...calls({ prompt: "a blue square" }), tools: [tool()] });
    const { id } = imageOf(first);
    const reference = { type: "image_generation_call", id } as unknown as ResponseInputItem;
    const scripted = scripts(call({ prompt: "nothing", action: "edit" }), SAYS);
    const user: ResponseInputItem = { role: "user", content: scripted };
    const answer = await openai.responses.create({ model: REPEATER, input: [reference, user], tools: [tool()] });
    expect(painter.asked.at(-1)?.images[0]?.toString("base64")).toBe(imageOf(first).result);
    expect(answer.status).toBe("completed");
    const items = await openai.responses.inputItems.list(answer.id, { order: "asc" });
    expect(items.data[0]).toMatchObject({ type: "image_generation_call", result: imageOf(first).result });
    const both = { prompt: "both", image_ids: [imageOf(second).id, id] };
    const input = [...givenBack(second), reference, { role: "user" as const, content: scripts(call(both), SAYS) }];
    await openai.responses.create({ model: REPEATER, input, tools: [tool()], store: false });
    const given = painter.asked.at(-1)?.images.map((bytes) => bytes.toString("base64"));
    expect(given).toEqual([imageOf(second).result, imageOf(first).result]);
    // Another tenant's image is a 404.
    const theirs = stranger.responses.create({ model: REPEATER, input: [reference, user], tools: [tool()] });
    await expect(theirs).rejects.toMatchObject({ status: 400 });
    const stolen = { ...imageOf(first), result: null } as unknown as ResponseInputItem;
    const tried = await stranger.responses.create({ model: REPEATER, input: [stolen, user], tools: [tool()] });
    expect(imageOf(tried)).toMatchObject({ status: "failed", result: "" });
    const shown = await stranger.responses.inputItems.list(tried.id, { order: "asc" });
    expect(shown.data[0]).toMatchObject({ type: "image_generation_call", result: "" });
  });

  it("continues a conversation, whose items have the image as long as its file exists", async () => {
    const conversation = await openai.conversations.create();
    const made = await openai.responses.create({
      ...calls({ prompt: "a red circle" }),
      tools: [tool()],
      conversation: conversation.id,
    });
    const item = imageOf(made);
    expect(await openai.conversations.items.retrieve(item.id, { conversation_id: conversation.id })).toMatchObject({
      result: item.result,
    });
    await openai.files.delete(item.file_id ?? "");
    // This bypasses the checks, which refuse an item that differs from its first form.
    const unchecked = gateway.client({ apiKey: openai.apiKey, fetch: globalThis.fetch });
    expect(imageOf(await unchecked.responses.retrieve(made.id))).toMatchObject({
      status: "completed",
      result: "",
      file_id: item.file_id,
    });
    const edit = calls({ prompt: "bluer", action: "edit" });
    const next = await openai.responses.create({ ...edit, tools: [tool()], conversation: conversation.id });
    expect(imageOf(next)).toMatchObject({ status: "failed", error: { message: expect.stringMatching(/not found/) } });
  });
});

it("changes the user's images, by data, by file, and for gpt-oss, which does not see them", async () => {
  const drawn = imageOf(
    await openai.responses.create({ ...calls({ prompt: "a red circle" }), tools: [tool()], store: false }),
  );
  expect(drawn.file_id).toBeUndefined();
  const file = await openai.files.create({
    file: await toFile(Buffer.from(drawn.result ?? "", "base64"), "circle.png"),
    purpose: "vision",
  });
  const content = [
    { type: "input_text" as const, text: scripts(call({ prompt: "a blue circle", action: "edit" }), SAYS) },
    { type: "input_image" as const, detail: "auto" as const, image_url: `data:image/png;base64,${drawn.result}` },
    { type: "input_image" as const, detail: "auto" as const, file_id: file.id },
  ];
  const answer = await openai.responses.create({
    model: REPEATER,
    input: [{ role: "user", content }],
    tools: [tool()],
  });
  expect(painter.asked.at(-1)?.images.map((bytes) => bytes.toString("base64"))).toEqual([drawn.result, drawn.result]);
  expect(middleOf(imageOf(answer))).toEqual(BLUE);
  expect((await lastTurns(gateway)).join("\n")).toContain("[An image, which you cannot see]");
  const without = openai.responses.create({ model: REPEATER, input: [{ role: "user", content }] });
  await expect(without).rejects.toMatchObject({ code: "unsupported_content_type" });
});

describe("the tool's fields", () => {
  it("reach the image server: quality as steps, size, format, background", async () => {
    await openai.responses.create({
      ...calls({ prompt: "a red circle" }),
      tools: [
        tool({ model: "gpt-image-2", quality: "low", background: "transparent", partial_images: 2, moderation: "low" }),
      ],
    });
    expect(painter.asked.at(-1)?.fields).toMatchObject({
      model: "painter",
      num_inference_steps: 4,
      background: "transparent",
    });
    await openai.responses.create({
      ...calls({ prompt: "x", size: "1024x1536" }),
      tools: [tool({ size: "auto", quality: "high" })],
    });
    expect(painter.asked.at(-1)?.fields).toMatchObject({ quality: "high", size: "1024x1536" });
  });

  it.each([
    ["input_image_mask", { input_image_mask: { file_id: "file-1" } }],
    ["complexity", { complexity: "low" }],
    ["frame_count", { frame_count: 3 }],
    ["svg", { svg: {} }],
    ["input_fidelity", { input_fidelity: "high" }],
    ["output_format", { output_format: "gif" }],
    ["output_format", { output_format: "svg" }],
    ["output_compression", { output_compression: 50 }],
    ["background", { background: "transparent", output_format: "jpeg" }],
    ["size", { size: "1000x1000" }],
    ["size", { size: "4096x4096" }],
    ["model", { model: "dall-e-9" }],
    ["partial_images", { partial_images: 4 }],
  ])("without an effect at any server are refused by name: %s", async (field, fields) => {
    const tools = [tool(fields)];
    const refused = openai.responses.create({
      model: "simulator",
      input: "x",
      tools,
    } as ResponseCreateParamsNonStreaming);
    await expect(refused).rejects.toMatchObject({ status: 400, param: `tools[0].${field}` });
  });
});

describe("a server that does not draw the requested image", () => {
  const image = (bytes: Buffer) => ({ body: { data: [{ b64_json: bytes.toString("base64") }] } });
  it.each([
    [
      "another format",
      () => image(Buffer.from("\xff\xd8\xff\xc0\0\x0b\x08\0\x10\0\x10\x01\x11\0\xff\xd9", "latin1")),
      /made jpeg, not png/,
    ],
    ["an address", () => ({ body: { data: [{ url: "http://inside/a.png" }] } }), /has no image/],
    ["no image", () => image(Buffer.from("hello")), /is not an image/],
    ["no JSON", () => ({ body: "<html>" }), /has no image/],
    ["a refusal", () => ({ status: 400, body: { detail: "Prompt too long" } }), /Prompt too long/],
    ["a failure", () => ({ status: 500, body: { detail: "CUDA out of memory" } }), /./],
  ])("fails the call, and the model is told: %s", async (_name, answer, message) => {
    other = answer;
    const { response, events } = await ask(
      gateway,
      "stream",
      { ...calls({ prompt: "a red circle" }), tools: [tool()] },
      openai,
    );
    expect(response.status).toBe("completed");
    expect(imageOf(response)).toMatchObject({
      status: "failed",
      result: "",
      error: { message: expect.stringMatching(message) },
    });
    expect(events.map(({ type }) => type)).not.toContain("response.image_generation_call.completed");
    expect((await lastTurns(gateway)).join("\n")).toMatch(/Error: /);
  });

  it("loses its request when the client disconnects", async () => {
    const { promise: asked, resolve } = Promise.withResolvers<AskedImage>();
    other = async (request) => {
      resolve(request);
      await request.closed;
      return undefined;
    };
    const stream = await openai.responses.create({ ...calls({ prompt: "x" }), tools: [tool()], stream: true });
    const reading = Array.fromAsync(stream).catch(() => []);
    const { closed } = await asked;
    stream.controller.abort();
    await reading;
    await closed;
  });
});

describe("the image servers' own routes", () => {
  it("draw and change images for the SDK, with the caller's key and limits, and with listed fields alone", async () => {
    const made = await openai.images.generate({ model: "gpt-image-2", prompt: "a red circle", size: "64x64" });
    const [first] = made.data ?? [];
    expect(middleOf({ result: first?.b64_json ?? "" })).toEqual(RED);
    expect(painter.asked.at(-1)?.fields).toMatchObject({ model: "painter", response_format: "b64_json" });
    const image = await toFile(Buffer.from(first?.b64_json ?? "", "base64"), "circle.png", { type: "image/png" });
    const edited = await openai.images.edit({ image, prompt: "a blue circle" });
    expect(middleOf({ result: edited.data?.[0]?.b64_json ?? "" })).toEqual(BLUE);
    expect(painter.asked.at(-1)).toMatchObject({ path: "/v1/images/edits", fields: { model: "painter" } });
    for (const [field, fields] of Object.entries({
      perf_dump_path: { perf_dump_path: "/tmp/x" },
      lora: { lora: { path: "/x" } },
      response_format: { response_format: "url" },
      stream: { stream: true },
      n: { n: 11 },
    })) {
      const refused = openai.images.generate({ prompt: "x", ...fields } as never);
      await expect(refused).rejects.toMatchObject({ status: 400, param: field });
    }
    const masked = openai.images.edit({ image, prompt: "x", mask: image });
    await expect(masked).rejects.toMatchObject({ status: 400, param: "mask" });
  });

  it("count their images, as the tool does", async () => {
    const { value, id } = await makeKey(gateway, "counted");
    const counted = gateway.client({ apiKey: value });
    await counted.images.generate({ prompt: "a red circle", n: 2 });
    await counted.responses.create({ ...calls({ prompt: "x" }, { prompt: "y" }), tools: [tool()] });
    const path = `/v1/organization/usage/images?start_time=${Math.floor(Date.now() / 1000) - 86_400}&group_by=model`;
    await eventually(async () => {
      const page = await admin<{ data: { results: { model: string; images: number; project_id: string }[] }[] }>(
        gateway,
        "GET",
        `${path}&group_by=project_id&api_key_ids=${id}`,
      );
      const results = page.data.flatMap((bucket) => bucket.results);
      const images = Object.fromEntries(results.map(({ model, images }) => [model, images]));
      return images.painter === 2 && images.image_generation === 2;
    });
  });

  it("can be forced by tool_choice: the tool is called", async () => {
    const choice = { type: "image_generation" as const };
    const body = { model: "simulator", input: "Hello.", tools: [tool({ action: "generate" })], tool_choice: choice };
    expect(imageOf(await openai.responses.create(body)).status).toBe("completed");
  });

  it("are closed to keys of other models", async () => {
    const { value } = await makeKey(gateway, "acme", { models: ["simulator"] });
    const limited = gateway.client({ apiKey: value });
    await expect(limited.images.generate({ model: "painter", prompt: "x" })).rejects.toMatchObject({ status: 403 });
  });
});

it("is refused for a key with other hosted tools", async () => {
  const { value } = await makeKey(gateway, "acme", { hosted_tools: ["file_search"] });
  const limited = gateway.client({ apiKey: value });
  const body = { model: "simulator", input: "Use image_generation, please.", tools: [tool()] };
  const answer = await limited.responses.create(body);
  expect(answer.output.map(({ type }) => type)).toEqual(["message"]);
});

it("works with the Agents SDK and the AI SDK", async () => {
  const model = new OpenAIResponsesModel(openai as never, REPEATER);
  const agent = new Agent({
    name: "Painter",
    model,
    tools: [imageGenerationTool({ quality: "low", size: "64x64" } as never)],
  });
  const prompt = scripts(call({ prompt: "a red circle" }), SAYS);
  const run = await new Runner({ tracingDisabled: true }).run(agent, prompt);
  const drawn = run.newItems.find((item) => item.type === "tool_call_item")?.rawItem as { output?: string } | undefined;
  expect(middleOf({ result: drawn?.output ?? "" })).toEqual(RED);
  expect(run.finalOutput).toBe("Here it is.");
  const provider = createOpenAI({
    apiKey: openai.apiKey as string,
    baseURL: `${gateway.url}/v1`,
    fetch: gateway.fetch as never,
  });
  const { steps, text } = await generateText({
    model: provider.responses(REPEATER),
    prompt,
    tools: { image_generation: provider.tools.imageGeneration({ size: "64x64" as never }) },
  });
  const results = steps.flatMap(({ staticToolResults }) => staticToolResults);
  expect(middleOf(results[0]?.output as { result: string })).toEqual(RED);
  expect(text).toBe("Here it is.");
});
