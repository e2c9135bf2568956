/// <reference path="./wasm.d.ts" />

import type { LongWork } from "@responses-edge/bounded-io/long-work";

/**
 * Pictures of a PDF's pages, for models that see. PDFium draws them and MozJPEG encodes them, both as WebAssembly, which loads with the
 * first picture. pdf.js needs a canvas for it, which workerd lacks.
 */

/** Which pages to draw, and how large. */
export interface PicturesWanted {
  /** Their numbers, from 1, in the order of the answer. */
  pages: readonly number[];
  /** The longer edge of each picture. Pixels. */
  edge: number;
  /** The most memory that drawing takes, with the file's bytes. */
  maxMemory: number;
}

/** The picture of a page; null where it cannot be drawn. */
export interface PagePicture {
  page: number;
  /** A JPEG, as base64. */
  jpeg: string | null;
}

/** Drawing and encoding a million pixels takes about a tenth of a second. Microseconds. */
const UNITS_PER_PIXEL = 0.1;

/** At 75, the text of a page stays as legible as at 90, with half of the bytes. */
const QUALITY = 75;

type Pdfium = Awaited<ReturnType<typeof import("@hyzyla/pdfium")["PDFiumLibrary"]["init"]>>;
type PdfiumDocument = Awaited<ReturnType<Pdfium["loadDocument"]>>;

/**
 * Draws pages of a PDF, each as a picture whose longer edge has `edge` pixels, whatever size the page claims. A page that cannot be drawn,
 * because it is damaged or needs more memory, gives null, and so do those of a file that cannot be opened. Time is the caller's to bound:
 * a page is drawn in one step.
 *
 * @param work The tenant's work, which takes turns with other tenants' between pages.
 */
export async function* drawPages(
  bytes: Uint8Array,
  { pages, edge, maxMemory }: PicturesWanted,
  work: LongWork,
): AsyncGenerator<PagePicture> {
  let pdfium: Pdfium | undefined;
  let file: PdfiumDocument | undefined;
  for (const page of pages) {
    let jpeg: string | null = null;
    try {
      // After a fault of memory, nothing of its instance can be trusted.
      pdfium ??= await newPdfium(maxMemory);
      file ??= await pdfium.loadDocument(bytes);
      jpeg = await draw(file, page, edge);
    } catch {
      [pdfium, file] = [undefined, undefined];
    }
    await work.spend(edge * edge * UNITS_PER_PIXEL);
    yield { page, jpeg };
  }
}

async function draw(file: PdfiumDocument, number: number, edge: number): Promise<string> {
  const page = file.getPage(number - 1);
  const { originalWidth, originalHeight } = page.getOriginalSize();
  const scale = edge / Math.max(originalWidth, originalHeight);
  const [width, height] = [originalWidth, originalHeight].map((length) => Math.max(1, Math.round(length * scale)));
  if (!(Number.isFinite(scale) && width && height)) throw new RangeError("The page has no size.");
  const { data } = await page.render({ width, height, scale: 1, render: "bitmap", renderFormFields: true });
  const encode = await loadEncoder();
  return new Uint8Array(await encode(imageOf(data, width, height), { quality: QUALITY })).toBase64();
}

/** An instance with a memory of its own: no file reads what is left of another. */
async function newPdfium(maxMemory: number): Promise<Pdfium> {
  const [{ PDFiumLibrary }, { default: module }] = await Promise.all([
    import("@hyzyla/pdfium"),
    import("@hyzyla/pdfium/pdfium.wasm"),
  ]);
  return PDFiumLibrary.init({
    instantiateWasm(imports, onInstance) {
      const { env } = imports as { env: { emscripten_resize_heap: (bytes: number) => unknown } };
      const { emscripten_resize_heap: resize } = env;
      // PDFium takes a refusal for the end of the memory.
      env.emscripten_resize_heap = (bytes) => bytes >>> 0 <= maxMemory && resize(bytes);
      const instance = new WebAssembly.Instance(module, imports);
      (onInstance as unknown as (made: WebAssembly.Instance) => void)(instance);
      return instance.exports;
    },
  });
}

/** True once the encoder has an instance: a request must not wait for the promise of another. */
let isReady = false;

async function loadEncoder() {
  const [{ default: encode, init }, { default: module }] = await Promise.all([
    import("@jsquash/jpeg/encode.js"),
    import("@jsquash/jpeg/codec/enc/mozjpeg_enc.wasm"),
  ]);
  if (!isReady) {
    const hasLocation = "location" in globalThis;
    const ready = init(module);
    // It gives a Worker a `location` without an origin, which fails packages that read it when they are loaded (the MCP client's).
    if (!hasLocation) Reflect.deleteProperty(globalThis, "location");
    await ready;
    await encode(imageOf(new Uint8Array(4), 1, 1));
    isReady = true;
  }
  return encode;
}

/** An image for the encoder, which reads only these fields of the browser's type. */
function imageOf(data: Uint8Array, width: number, height: number): never {
  return { data: new Uint8ClampedArray(data.buffer, data.byteOffset, data.byteLength), width, height } as never;
}
