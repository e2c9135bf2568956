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

/** The pieces of a file, as a model that sees is given them: its text, and the pictures of its pages in between. */
export function fileParts(file: InputFile): ({ text: string } | { picture: string })[] {
  const text = fileText(file);
  const parts: ({ text: string } | { picture: string })[] = [];
  let from = 0;
  for (const { after, url } of file.file_pictures ?? []) {
    if (after > from) parts.push({ text: text.slice(from, after) });
    parts.push({ picture: url });
    from = after;
  }
  const rest = text.slice(from);
  return rest.trim() === "" && from > 0 ? parts : [...parts, { text: rest }];
}
