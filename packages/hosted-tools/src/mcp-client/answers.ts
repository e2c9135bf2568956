import type { CallToolResult, Client, ContentBlock, RequestOptions } from "@modelcontextprotocol/client";
import { refuseLargeFormats } from "@responses-edge/responses-api/bounded-formats";
import { ApiError } from "@responses-edge/responses-api/errors";
import { z } from "zod";
import { ToolFault } from "./tool-fault.ts";

/** A tool of a server, in the form of an `mcp_list_tools` item. */
export interface ListedTool {
  name: string;
  description?: string;
  input_schema: Record<string, unknown>;
  annotations?: Record<string, unknown>;
}

/** The maximum bytes of a tool's input schema as JSON: it goes into every prompt. */
const MAX_SCHEMA_BYTES = 64 * 1024;

/** Names that the specification allows for a tool (2025-11-25, "Tool Names"); prompts have the same form. */
const TOOL_NAME = /^[A-Za-z0-9_./-]{1,128}$/;

/** The maximum of pages: a longer list never ends. */
const MAX_PAGES = 500;

export interface ToolListBounds {
  /** The name of the server in faults. */
  server: string;
  maxTools: number;
  /** The maximum bytes of all tools together. */
  maxBytes: number;
}

/** The request options and the trace of an operation. */
interface Asking {
  request: RequestOptions;
  meta: { _meta?: Record<string, unknown> };
}

/** A page of a list. Each tool is read by itself, so that one with a fault does not hide the others. */
const ToolPage = z.looseObject({ tools: z.array(z.unknown()), nextCursor: z.string().optional() });

const Tool = z.looseObject({
  name: z.string().regex(TOOL_NAME),
  description: z.string().optional().catch(undefined),
  annotations: z.record(z.string(), z.unknown()).optional().catch(undefined),
});

const InputSchema = z.looseObject({ type: z.literal("object") });

/**
 * All tools of a server by name, in its order; without those with a name that the specification does not allow. A tool whose input
 * schema cannot be used takes any object, and says so. Throws ToolFault `too_large` or `protocol`, and the client's errors.
 */
export async function readTools(
  client: Client,
  { server, maxTools, maxBytes }: ToolListBounds,
  { request, meta }: Asking,
): Promise<Map<string, ListedTool>> {
  const tools = new Map<string, ListedTool>();
  if (!client.getServerCapabilities()?.tools) return tools;
  let listed = 0;
  let bytes = 0;
  let cursor: string | undefined;
  for (let page = 0; page < MAX_PAGES; page++) {
    const params = { ...(cursor !== undefined && { cursor }), ...meta };
    const result = await client.request({ method: "tools/list", params }, ToolPage, request);
    listed += result.tools.length;
    if (listed > maxTools) throw new ToolFault("too_large", `${server} lists more than ${maxTools} tools.`);
    for (const each of result.tools) {
      const tool = toolIn(each);
      if (!tool || tools.has(tool.name)) continue;
      bytes += JSON.stringify(tool.input_schema).length + (tool.description?.length ?? 0);
      if (bytes > maxBytes) throw new ToolFault("too_large", `The tools of ${server} are too large together.`);
      tools.set(tool.name, tool);
    }
    cursor = result.nextCursor;
    if (cursor === undefined) return tools;
  }
  throw new ToolFault("protocol", `${server} lists its tools on more than ${MAX_PAGES} pages.`);
}

/** A tool of a page; undefined without a name that can be called. */
function toolIn(listed: unknown): ListedTool | undefined {
  const read = Tool.safeParse(listed);
  if (!read.success) return undefined;
  const { name, description, annotations, inputSchema } = read.data;
  const fault = schemaFault(inputSchema);
  const told = [description, fault && `(Its input schema was left out: ${fault})`].filter(Boolean).join(" ");
  return {
    name,
    ...((description !== undefined || fault) && { description: told }),
    input_schema: fault ? { type: "object" } : (inputSchema as Record<string, unknown>),
    ...(annotations !== undefined && { annotations }),
  };
}

/** The reason why a model server cannot be given a schema; undefined if it can. */
function schemaFault(schema: unknown): string | undefined {
  const read = InputSchema.safeParse(schema);
  if (!read.success) return "it is not the schema of an object.";
  if (new TextEncoder().encode(JSON.stringify(schema)).byteLength > MAX_SCHEMA_BYTES) return "it is too large.";
  try {
    // A model server binds calls to the schema, and any server may have written the schema.
    refuseLargeFormats(schema, ["input_schema"]);
    return undefined;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return error.message;
  }
}

/** Stands where an output was cut. */
const TRUNCATED = "\n[truncated]\n";

/** Characters of a type or an address in a placeholder. The server chooses these, so a long one is cut. */
const MAX_NAME_LENGTH = 200;

/**
 * The result of a tool, as the text that the model reads: its text blocks by line, and a short placeholder for everything
 * else (`[image/png, 12345 bytes]`). Structured content counts only where there is no text: the specification
 * has servers repeat it as text. Longer text than `maxBytes` of UTF-8 is cut, and says so.
 */
export function outputText(result: CallToolResult, maxBytes: number): string {
  const { content, structuredContent } = result;
  let hasText = false;
  const lines: string[] = [];
  for (const block of content) {
    let text = block.type === "text" ? block.text : undefined;
    if (block.type === "resource" && "text" in block.resource) text = block.resource.text;
    hasText ||= text !== undefined;
    lines.push(text ?? placeholder(block));
  }
  if (!hasText && structuredContent !== undefined) lines.push(JSON.stringify(structuredContent));
  return truncate(lines.join("\n").toWellFormed(), maxBytes);
}

/** The images that models read, and the most of them in a result: their number, and the length of their base64 together. */
const IMAGE_TYPE = /^image\/(png|jpeg|gif|webp)$/;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;
const MAX_IMAGES = 8;
const MAX_IMAGES_LENGTH = 4_000_000;

/** The images of a result as data URLs; further ones, and those that are no image, are left to their placeholders. */
export function imagesIn({ content }: CallToolResult): string[] {
  const images: string[] = [];
  let left = MAX_IMAGES_LENGTH;
  for (const block of content) {
    if (block.type !== "image" || images.length === MAX_IMAGES) continue;
    const { data, mimeType } = block;
    if (data.length > left || !IMAGE_TYPE.test(mimeType) || !BASE64.test(data)) continue;
    left -= data.length;
    images.push(`data:${mimeType};base64,${data}`);
  }
  return images;
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

/** True if a byte of UTF-8 goes on with a character. */
function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}
