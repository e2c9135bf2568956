/** The data in the headers of images. It decodes no pixels. */

export type ImageFormat = "png" | "jpeg" | "webp" | "gif";

export interface ImageHeader {
  format: ImageFormat;
  width: number;
  height: number;
  hasAlpha: boolean;
  /** True if its last bytes end such an image. */
  isWhole: boolean;
}

/** Formats by the beginnings of their files. A space stands for any byte. */
const BEGINNINGS: readonly (readonly [first: string, format: ImageFormat])[] = [
  ["\x89PNG\r\n", "png"],
  ["\xff\xd8\xff", "jpeg"],
  ["GIF87a", "gif"],
  ["GIF89a", "gif"],
  ["RIFF    WEBP", "webp"],
];

/** The format of an image by its first bytes; undefined for an unknown one. */
export function imageFormatOf(bytes: Uint8Array): ImageFormat | undefined {
  return BEGINNINGS.find(([first]) => begins(bytes, first))?.[1];
}

function begins(bytes: Uint8Array, first: string, from = 0): boolean {
  return Array.from(first).every((character, at) => character === " " || character.charCodeAt(0) === bytes[from + at]);
}

/** Reads the header of an image. Undefined without a header, or without a size in it. */
export function readImageHeader(bytes: Uint8Array): ImageHeader | undefined {
  const format = imageFormatOf(bytes);
  const read = format && READERS[format](bytes, new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  return read && read.width > 0 && read.height > 0 ? { format, ...read } : undefined;
}

type Facts = Omit<ImageHeader, "format">;
type Reader = (bytes: Uint8Array, view: DataView) => Facts | undefined;

const READERS: Readonly<Record<ImageFormat, Reader>> = { png, jpeg, webp, gif };

const PNG_SIGNATURE_BYTES = 8;
const PNG_CHUNK_FRAME_BYTES = 12;
/** The last chunk: no data, `IEND`, and its checksum. */
const PNG_END = "\0\0\0\0IEND\xae\x42\x60\x82";

/** PNG (W3C, third edition): colour types 4 and 6 have alpha, others by a chunk `tRNS`. */
function png(bytes: Uint8Array, view: DataView): Facts | undefined {
  if (bytes.length < 33 || !begins(bytes, "IHDR", 12)) return undefined;
  const colourType = view.getUint8(25);
  let hasAlpha = colourType === 4 || colourType === 6;
  for (let at = PNG_SIGNATURE_BYTES; !hasAlpha && at + PNG_CHUNK_FRAME_BYTES <= bytes.length; ) {
    if (begins(bytes, "IDAT", at + 4)) break;
    hasAlpha = begins(bytes, "tRNS", at + 4);
    at += PNG_CHUNK_FRAME_BYTES + view.getUint32(at);
  }
  const isWhole = begins(bytes, PNG_END, bytes.length - PNG_END.length);
  return { width: view.getUint32(16), height: view.getUint32(20), hasAlpha, isWhole };
}

/** The maximum of padding that encoders write after the end of a JPEG. */
const JPEG_PADDING_BYTES = 64;

/** JPEG (ITU-T T.81): the size is in the frame header, whose marker is SOF0 to SOF15 without DHT, JPG and DAC. */
function jpeg(bytes: Uint8Array, view: DataView): Facts | undefined {
  let at = 2;
  while (at + 9 < bytes.length) {
    if (view.getUint8(at) !== 0xff) return undefined;
    const marker = view.getUint8(at + 1);
    if (marker === 0xff) {
      at += 1;
      continue;
    }
    const isFrame = marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
    if (isFrame) {
      const isWhole = hasJpegEnd(bytes);
      return { width: view.getUint16(at + 7), height: view.getUint16(at + 5), hasAlpha: false, isWhole };
    }
    // The marker takes two bytes, and most have a segment.
    at += 2 + (marker === 0x01 || (marker >= 0xd0 && marker <= 0xd8) ? 0 : view.getUint16(at + 2));
  }
  return undefined;
}

function hasJpegEnd(bytes: Uint8Array): boolean {
  for (let at = bytes.length - 2; at >= Math.max(0, bytes.length - JPEG_PADDING_BYTES); at -= 1) {
    if (bytes[at] === 0xff && bytes[at + 1] === 0xd9) return true;
  }
  return false;
}

/** WebP (RFC 9649): lossy, lossless and extended files have their size in different places. */
function webp(bytes: Uint8Array, view: DataView): Facts | undefined {
  if (bytes.length < 30) return undefined;
  const isWhole = view.getUint32(4, true) + 8 <= bytes.length;
  if (begins(bytes, "VP8X", 12)) {
    const hasAlpha = (view.getUint8(20) & 0x10) !== 0;
    return { width: uint24(view, 24) + 1, height: uint24(view, 27) + 1, hasAlpha, isWhole };
  }
  if (begins(bytes, "VP8L", 12) && view.getUint8(20) === 0x2f) {
    const bits = view.getUint32(21, true);
    const [width, height] = [(bits & 0x3fff) + 1, ((bits >>> 14) & 0x3fff) + 1];
    return { width, height, hasAlpha: ((bits >>> 28) & 1) === 1, isWhole };
  }
  if (!begins(bytes, "VP8\x20", 12) || view.getUint8(15) !== 0x20) return undefined;
  if (!begins(bytes, "\x9d\x01\x2a", 23)) return undefined;
  const [width, height] = [view.getUint16(26, true) & 0x3fff, view.getUint16(28, true) & 0x3fff];
  return { width, height, hasAlpha: false, isWhole };
}

function uint24(view: DataView, at: number): number {
  return view.getUint16(at, true) | (view.getUint8(at + 2) << 16);
}

/** GIF89a: the size of the screen, least significant byte first. The trailer is a semicolon. */
function gif(bytes: Uint8Array, view: DataView): Facts | undefined {
  if (bytes.length < 14) return undefined;
  const isWhole = bytes.at(-1) === 0x3b;
  return { width: view.getUint16(6, true), height: view.getUint16(8, true), hasAlpha: false, isWhole };
}
