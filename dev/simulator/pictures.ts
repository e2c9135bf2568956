import { Buffer } from "node:buffer";

/** The model that sees: its answers say what it was shown. */
export const SEEING_MODEL = "simulator-vision";

/** A marker of a JPEG that begins a frame, with its size (ITU-T T.81, table B.1). */
const isFrame = (marker: number) => marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);

/** Describes a JPEG in a data URL: its width and height in pixels. `[image]` for every other image. */
export function describePicture(url: string): string {
  const [, base64] = /^data:image\/jpeg;base64,(.*)$/s.exec(url) ?? [];
  if (base64 === undefined) return "[image]";
  const bytes = Buffer.from(base64, "base64");
  for (let at = 2; at + 9 < bytes.length && bytes[at] === 0xff; at += 2 + bytes.readUInt16BE(at + 2)) {
    if (isFrame(bytes[at + 1] ?? 0))
      return `[image: jpeg, ${bytes.readUInt16BE(at + 7)} x ${bytes.readUInt16BE(at + 5)}]`;
  }
  return "[image]";
}
