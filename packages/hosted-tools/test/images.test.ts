import {
  drawnImage,
  editForm,
  generationBody,
  ImageFault,
  type ImageMaker,
  ImageSession,
  imageFormatOf,
  imageFunction,
  imagesIn,
  passedImageFault,
  readImageHeader,
} from "@responses-edge/hosted-tools/image-generation";
import { ApiError } from "@responses-edge/responses-api/errors";
import { describe, expect, it } from "vitest";

const text = (bytes: string) => Uint8Array.from(bytes, (character) => character.charCodeAt(0));
const be32 = (value: number) =>
  String.fromCharCode(value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255);
const le = (value: number, bytes: number) =>
  Array.from({ length: bytes }, (_, at) => String.fromCharCode(Math.floor(value / 256 ** at) % 256)).join("");

const IEND = `${be32(0)}IEND\xae\x42\x60\x82`;
const png = (width: number, height: number, { colours = 2, extra = "", end = IEND } = {}) =>
  text(
    `\x89PNG\r\n\x1a\n${be32(13)}IHDR${be32(width)}${be32(height)}\x08${String.fromCharCode(colours)}\0\0\0${be32(0)}` +
      `${extra}${be32(4)}IDATdata${be32(0)}${end}`,
  );
const jpeg = (width: number, height: number, end = "\xff\xd9") =>
  text(
    `\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0\xff\xff\xc4\0\x04ab\xff\xc2\0\x0b\x08` +
      `${String.fromCharCode(height >> 8, height & 255, width >> 8, width & 255)}\x01\x11\0${end}`,
  );
const webp = (chunk: string) => text(`RIFF${le(chunk.length + 4, 4)}WEBP${chunk}`);
const PAD = "\0".repeat(16);
const extended = (width: number, height: number, flags: number) =>
  webp(`VP8X${le(10, 4)}${String.fromCharCode(flags)}\0\0\0${le(width - 1, 3)}${le(height - 1, 3)}${PAD}`);
const lossless = (width: number, height: number, alpha: number) =>
  webp(`VP8L${le(5, 4)}\x2f${le(width - 1 + (height - 1) * 2 ** 14 + alpha * 2 ** 28, 4)}${PAD}`);
const lossy = (width: number, height: number) =>
  webp(`VP8\x20${le(20, 4)}abc\x9d\x01\x2a${le(width, 2)}${le(height, 2)}${PAD}`);
const gif = (width: number, height: number) => text(`GIF89a${le(width, 2)}${le(height, 2)}\0\0\0,;`);

describe("the header of an image", () => {
  it.each([
    ["png", png(3840, 2160), [3840, 2160, false, true]],
    ["png", png(16, 32, { colours: 6 }), [16, 32, true, true]],
    ["png", png(16, 32, { colours: 3, extra: `${be32(1)}tRNSx${be32(0)}` }), [16, 32, true, true]],
    ["png", png(16, 32, { end: "" }), [16, 32, false, false]],
    ["jpeg", jpeg(1024, 768), [1024, 768, false, true]],
    ["jpeg", jpeg(1024, 768, "\xff\xd9\0\0"), [1024, 768, false, true]],
    ["jpeg", jpeg(1024, 768, "\0\0"), [1024, 768, false, false]],
    ["webp", extended(1536, 1024, 0x10), [1536, 1024, true, true]],
    ["webp", extended(1536, 1024, 0), [1536, 1024, false, true]],
    ["webp", lossless(300, 200, 1), [300, 200, true, true]],
    ["webp", lossy(640, 480), [640, 480, false, true]],
    ["webp", lossy(640, 480).subarray(0, 30), [640, 480, false, false]],
    ["gif", gif(20, 10), [20, 10, false, true]],
  ] as const)(
    "of a %s has its size, its transparency and its end",
    (format, bytes, [width, height, hasAlpha, isWhole]) => {
      expect(readImageHeader(bytes)).toEqual({ format, width, height, hasAlpha, isWhole });
      expect(imageFormatOf(bytes)).toBe(format);
    },
  );

  it("is absent for other bytes, in any pieces", () => {
    for (const whole of [png(16, 16), jpeg(16, 16), extended(16, 16, 0), gif(16, 16)]) {
      for (let length = 0; length < whole.length; length += 1) readImageHeader(whole.subarray(0, length));
    }
    expect(readImageHeader(text("<html>"))).toBeUndefined();
    expect(readImageHeader(new Uint8Array())).toBeUndefined();
    expect(readImageHeader(png(0, 16))).toBeUndefined();
    // Chunks and segments that claim to be longer than all there is.
    expect(
      readImageHeader(
        text(`\x89PNG\r\n\x1a\n${be32(13)}IHDR${be32(1)}${be32(1)}\x08\x03\0\0\0${be32(0)}\xff\xff\xff\xffzzzz`),
      ),
    ).toMatchObject({ isWhole: false });
    expect(readImageHeader(text("\xff\xd8\xff\xe0\xff\xff"))).toBeUndefined();
  });
});

const drawing = { model: "painter", prompt: "an owl", format: "png", images: [] } as const;

describe("a request to an image server", () => {
  it("asks for the image itself, in the format that is wanted", () => {
    const asked = {
      ...drawing,
      size: "64x64",
      quality: "high",
      background: "opaque",
      compression: 80,
      steps: 9,
    } as const;
    expect(generationBody(asked)).toEqual({
      model: "painter",
      prompt: "an owl",
      n: 1,
      response_format: "b64_json",
      output_format: "png",
      size: "64x64",
      quality: "high",
      background: "opaque",
      output_compression: 80,
      num_inference_steps: 9,
      step: 9,
    });
  });

  it("has the images to be changed as files of one field", async () => {
    const { body, contentType } = await editForm({ ...drawing, images: [png(16, 16), jpeg(16, 16)] });
    const form = await new Response(body, { headers: { "content-type": contentType } }).formData();
    const files = form.getAll("image") as unknown as File[];
    expect(files.map(({ name, type }) => [name, type])).toEqual([
      ["image-1.png", "image/png"],
      ["image-2.jpeg", "image/jpeg"],
    ]);
    expect(new Uint8Array(await (files[0] as File).arrayBuffer())).toEqual(png(16, 16));
    expect(form.get("response_format")).toBe("b64_json");
  });
});

describe("an answer of an image server", () => {
  const answer = (bytes: Uint8Array, more: object = {}) =>
    JSON.stringify({ created: 1, data: [{ b64_json: bytes.toBase64(), ...more }] });

  it("is the image with its real size", () => {
    expect(drawnImage(answer(png(48, 32), { revised_prompt: "An owl." }), drawing)).toMatchObject({
      width: 48,
      height: 32,
      base64: png(48, 32).toBase64(),
      revisedPrompt: "An owl.",
    });
    expect(drawnImage(answer(png(48, 32), { revised_prompt: "an owl" }), drawing).revisedPrompt).toBeUndefined();
  });

  it.each([
    ["no JSON", "<html>", /has no image/],
    ["no list", "{}", /has no image/],
    ["null", "null", /has no image/],
    ["an empty list", '{"data":[]}', /has no image/],
    ["a URL", '{"data":[{"url":"http://inside/a.png"}]}', /has no image/],
    ["no base64", '{"data":[{"b64_json":"***"}]}', /is not an image/],
    ["no image", answer(text("hello")), /is not an image/],
    ["half an image", answer(png(16, 16, { end: "" })), /cut off/],
    ["another format", answer(jpeg(16, 16)), /made jpeg, not png/],
    ["too many bytes", answer(new Uint8Array(2000)), /too large/],
  ])("is refused with %s", (_name, body, message) => {
    expect(() => drawnImage(body, drawing, 1000)).toThrow(message);
    expect(() => drawnImage(body, drawing, 1000)).toThrow(ImageFault);
  });

  it("has the transparency that was asked for", () => {
    const asked = { ...drawing, background: "transparent" } as const;
    expect(() => drawnImage(answer(png(16, 16)), asked)).toThrow(/without transparency/);
    expect(drawnImage(answer(png(16, 16, { colours: 6 })), asked)).toMatchObject({ width: 16 });
  });
});

it("a client's own request has only fields that reach no further than itself", () => {
  const fault = (fields: Record<string, unknown>, files: string[] = []) =>
    passedImageFault(
      Object.entries(fields).map(([name, value]) => [name, value, files.includes(name)] as const),
      (field) => field === "eta",
    )?.field;
  expect(
    fault({ prompt: "an owl", n: 2, size: "64x64", seed: 7, response_format: "b64_json", stream: false }),
  ).toBeUndefined();
  expect(fault({ prompt: "an owl", image: "…", "image[]": "…" }, ["image", "image[]"])).toBeUndefined();
  expect(fault({ eta: 1, lora: null })).toBeUndefined();
  for (const [name, value] of Object.entries({
    perf_dump_path: "/etc/x",
    lora: { path: "/models" },
    url: "http://inside/",
    mask: "…",
    stream: true,
    partial_images: 2,
    response_format: "url",
    n: 11,
    image: "http://inside/",
  })) {
    expect(fault({ prompt: "an owl", [name]: value })).toBe(name);
  }
  expect(fault({ prompt: "…" }, ["prompt"])).toBe("prompt");
});

it("a model is offered the choices that the request leaves to it", () => {
  const fields = (tool: Parameters<typeof imageFunction>[0]) => Object.keys(imageFunction(tool).parameters.properties);
  expect(fields({})).toEqual(["prompt", "action", "image_ids", "size"]);
  expect(fields({ action: "generate", size: "64x64" })).toEqual(["prompt"]);
  expect(fields({ action: "edit", size: "auto" })).toEqual(["prompt", "image_ids", "size"]);
});

describe("the images of a turn", () => {
  const message = (...urls: string[]) => ({
    type: "message",
    role: "user",
    content: urls.map((image_url) => ({ type: "input_image", image_url })),
  });
  const given = png(16, 16);
  const items = [
    message(`data:image/png;base64,${given.toBase64()}`, "https://owls.dev/a.png"),
    { type: "image_generation_call", id: "ig_1", result: "", file_id: "file-1", status: "completed" },
    { type: "image_generation_call", id: "ig_2", result: "", status: "failed" },
    { type: "message", role: "assistant", content: [{ type: "output_text", text: "There." }] },
  ];

  function sessionWith(tool: object, more: { items?: object[]; isKept?: boolean; keep?: () => Promise<string> } = {}) {
    const drawings: Parameters<ImageMaker["draw"]>[0][] = [];
    const session = new ImageSession({
      tool,
      items: (more.items ?? items) as { type: string }[],
      isKept: more.isKept ?? true,
      maker: {
        async draw(asked) {
          drawings.push(asked);
          const bytes = png(32, 32);
          return { bytes, base64: bytes.toBase64(), width: 32, height: 32, revisedPrompt: undefined };
        },
        fetch: async () => jpeg(16, 16),
      },
      files: {
        read: async (id) => {
          if (id !== "file-1") throw new ApiError({ status: 404, message: "not there", code: "file_not_found" });
          return { body: new Blob([png(64, 64)]).stream() as unknown as AsyncIterable<Uint8Array> };
        },
        keep: more.keep ?? (async (name) => `file-of-${name}`),
      },
    });
    const draw = (args: object) => session.draw("ig_9", JSON.stringify(args), new AbortController().signal);
    return { draw, drawings };
  }

  it("are found in their order, with the ids of their calls", () => {
    expect(imagesIn(items).map(({ call, images }) => [call, images.map((image) => Object.keys(image)[0])])).toEqual([
      [undefined, ["base64", "url"]],
      ["ig_1", ["file"]],
    ]);
  });

  it("are drawn as the tool says, and kept as files", async () => {
    const { draw, drawings } = sessionWith({ size: "auto", quality: "low", background: "auto" });
    const { shown, output } = await draw({ prompt: "an owl", size: "1024x1024" });
    expect(drawings).toMatchObject([
      { prompt: "an owl", size: "1024x1024", quality: "low", format: "png", images: [] },
    ]);
    expect(drawings[0]?.background).toBeUndefined();
    expect(shown).toMatchObject({
      action: "generate",
      size: "32x32",
      file_id: "file-of-ig_9.png",
      revised_prompt: "an owl",
    });
    expect(output).toContain("ig_9");
    const fixed = sessionWith({ size: "64x64", action: "generate" });
    await fixed.draw({ prompt: "an owl", size: "1024x1024", action: "edit" });
    expect(fixed.drawings).toMatchObject([{ size: "64x64", images: [] }]);
    await expect(draw({})).rejects.toThrow(/prompt/);
  });

  it("are changed: the newest, or those of the ids that the model names, drawn ones of the turn among them", async () => {
    const { draw, drawings } = sessionWith({});
    await draw({ prompt: "bluer", action: "edit" });
    expect(drawings[0]?.images).toEqual([png(64, 64)]);
    await draw({ prompt: "bluer", action: "edit" });
    expect(drawings[1]?.images).toEqual([png(32, 32)]);
    await draw({ prompt: "together", image_ids: ["ig_1", "ig_9"] });
    expect(drawings[2]?.images).toEqual([png(64, 64), png(32, 32)]);
    await expect(draw({ prompt: "x", image_ids: ["ig_2"] })).rejects.toThrow("There is no image 'ig_2'");
    const users = sessionWith({ action: "edit" }, { items: items.slice(0, 1) });
    await users.draw({ prompt: "bluer" });
    expect(users.drawings[0]?.images).toEqual([given, jpeg(16, 16)]);
    await expect(sessionWith({ action: "edit" }, { items: [] }).draw({ prompt: "x" })).rejects.toThrow(/no image/);
    const gone = [{ type: "image_generation_call", id: "ig_1", result: "", file_id: "file-2", status: "completed" }];
    await expect(sessionWith({ action: "edit" }, { items: gone }).draw({ prompt: "x" })).rejects.toThrow("not there");
  });

  it("stand in their items alone where the turn is not kept, or a limit refuses the file", async () => {
    const unkept = await sessionWith({}, { isKept: false }).draw({ prompt: "an owl" });
    expect(unkept.shown.file_id).toBeUndefined();
    const full = async () => Promise.reject(new ApiError({ status: 429, message: "too many files", code: "x" }));
    const refused = await sessionWith({}, { keep: full }).draw({ prompt: "an owl" });
    expect(refused.shown).toMatchObject({ result: png(32, 32).toBase64() });
    expect(refused.shown.file_id).toBeUndefined();
  });
});
