import { crc32, deflateSync, inflateSync } from "node:zlib";

/** Writes and reads PNG of 8-bit RGBA. Other kinds are not supported. */

export interface Raster {
  width: number;
  height: number;
  /** Four bytes a pixel, row by row. */
  pixels: Uint8Array;
}

const SIGNATURE = Buffer.from("\x89PNG\r\n\x1a\n", "latin1");
const HEADER_LENGTH = 13;
const RGBA = 4;

export function encodePng({ width, height, pixels }: Raster): Buffer {
  const header = Buffer.alloc(HEADER_LENGTH);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  // Eight bits, RGB with alpha, the standard compression and filter, not interlaced.
  header.set([8, 6, 0, 0, 0], 8);
  const stride = width * RGBA;
  const rows = Buffer.alloc((stride + 1) * height);
  for (let y = 0; y < height; y += 1) rows.set(pixels.subarray(y * stride, (y + 1) * stride), y * (stride + 1) + 1);
  const data = deflateSync(rows, { level: 1 });
  return Buffer.concat([SIGNATURE, chunk("IHDR", header), chunk("IDAT", data), chunk("IEND", Buffer.alloc(0))]);
}

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const framed = Buffer.alloc(body.length + 8);
  framed.writeUInt32BE(data.length, 0);
  framed.set(body, 4);
  framed.writeUInt32BE(crc32(body), body.length + 4);
  return framed;
}

/** Reads the output of {@link encodePng}. Undefined for anything else. */
export function decodePng(bytes: Buffer): Raster | undefined {
  if (!bytes.subarray(0, SIGNATURE.length).equals(SIGNATURE) || bytes.length < 33) return undefined;
  const [width, height] = [bytes.readUInt32BE(16), bytes.readUInt32BE(20)];
  if (bytes[24] !== 8 || bytes[25] !== 6 || bytes[28] !== 0) return undefined;
  const data: Buffer[] = [];
  for (let at = SIGNATURE.length; at + 12 <= bytes.length; ) {
    const length = bytes.readUInt32BE(at);
    if (bytes.toString("latin1", at + 4, at + 8) === "IDAT") data.push(bytes.subarray(at + 8, at + 8 + length));
    at += length + 12;
  }
  const stride = width * RGBA;
  const rows = inflateSync(Buffer.concat(data), { maxOutputLength: (stride + 1) * height });
  const pixels = new Uint8Array(stride * height);
  for (let y = 0; y < height; y += 1) {
    if (rows[y * (stride + 1)] !== 0) return undefined;
    pixels.set(rows.subarray(y * (stride + 1) + 1, (y + 1) * (stride + 1)), y * stride);
  }
  return { width, height, pixels };
}
