import type { InputPart } from "./parts.ts";

/**
 * The text of a file for the model, under the file's name: the text that was read when its request was accepted, or its
 * data as text.
 */
export function fileText({ file_content: read, file_data: data = "", filename }: InputFile): string {
  if (read !== undefined) return read;
  const bytes = Uint8Array.fromBase64(data.slice(data.indexOf(",") + 1));
  return `[file: ${filename ?? "unnamed"}]\n${new TextDecoder().decode(bytes)}`;
}

type InputFile = Extract<InputPart, { type: "input_file" }>;
