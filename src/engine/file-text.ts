import type { InputPart } from "../items/parts.ts";

/** A text file as text, under its name. The schema has let only base64 data URLs of text pass. */
export function fileText(part: Extract<InputPart, { type: "input_file" }>): string {
  const base64 = part.file_data.slice(part.file_data.indexOf(",") + 1);
  const bytes = Uint8Array.fromBase64(base64);
  return `[file: ${part.filename ?? "unnamed"}]\n${new TextDecoder().decode(bytes)}`;
}
