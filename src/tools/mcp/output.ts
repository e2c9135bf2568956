import type { CallToolResult, ContentBlock } from "@modelcontextprotocol/client";

/** Stands where an output was cut. */
const TRUNCATED = "\n[truncated]\n";

/** A type or address that stands in a placeholder: the server's words, so short. */
const MAX_NAME_LENGTH = 200;

/**
 * What a tool returned, as the text the model reads: its text blocks by line, and a short placeholder for everything
 * that is none (`[image/png, 12345 bytes]`). Structured content counts only where there is no text: the specification
 * has servers repeat it as text. Longer text than `maxBytes` of UTF-8 is cut, and says so.
 */
export function outputText(result: CallToolResult, maxBytes: number): string {
  const { content, structuredContent } = result;
  const hasText = content.some((block) => textOf(block) !== undefined);
  const lines = content.map((block) => textOf(block) ?? placeholder(block));
  if (!hasText && structuredContent !== undefined) lines.push(JSON.stringify(structuredContent));
  return truncate(lines.join("\n"), maxBytes);
}

function textOf(block: ContentBlock): string | undefined {
  if (block.type === "text") return block.text;
  if (block.type === "resource" && "text" in block.resource) return block.resource.text;
  return undefined;
}

function placeholder(block: ContentBlock): string {
  switch (block.type) {
    case "image":
    case "audio":
      return `[${short(block.mimeType)}, ${base64Bytes(block.data)} bytes]`;
    case "resource": {
      const { resource } = block;
      const type = short(resource.mimeType ?? "application/octet-stream");
      return "blob" in resource ? `[${type}, ${base64Bytes(resource.blob)} bytes]` : `[${type}]`;
    }
    case "resource_link":
      return `[resource ${short(block.uri)}]`;
    case "text":
      return block.text;
  }
}

function short(text: string): string {
  return text.slice(0, MAX_NAME_LENGTH);
}

function base64Bytes(data: string): number {
  const padding = data.endsWith("==") ? 2 : data.endsWith("=") ? 1 : 0;
  return Math.max(0, Math.floor((data.length * 3) / 4) - padding);
}

/**
 * At most `maxBytes` of UTF-8, cut between characters: the beginning and the end, where a program says what became of it.
 */
export function truncate(text: string, maxBytes: number): string {
  // No character needs more than three bytes per UTF-16 unit.
  if (text.length * 3 <= maxBytes) return text;
  const bytes = new TextEncoder().encode(text);
  if (bytes.length <= maxBytes) return text;
  const half = Math.max(0, maxBytes - TRUNCATED.length) >> 1;
  let end = half;
  while (isContinuation(bytes[end])) end -= 1;
  let start = bytes.length - half;
  while (isContinuation(bytes[start])) start += 1;
  const decoder = new TextDecoder();
  return decoder.decode(bytes.subarray(0, end)) + TRUNCATED + decoder.decode(bytes.subarray(start));
}

/** Whether a byte of UTF-8 goes on with a character. */
function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}
