import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { draw } from "./drawing.ts";
import { decodePng, encodePng } from "./png.ts";

/** OpenAI's image routes with a rasteriser behind them, for development and tests. It needs no model. */

export const IMAGE_SERVER_MODEL = "painter";

/** A request that the server has received. */
export interface AskedImage {
  path: string;
  headers: Record<string, string>;
  /** The fields, without files. */
  fields: Record<string, unknown>;
  /** The bytes of its images. */
  images: Buffer[];
  /** Resolves when its answer has ended, or its client has disconnected. */
  closed: Promise<unknown>;
}

export interface ImageServer {
  /** `http://HOST:PORT`. */
  url: string;
  /** The last requests, oldest first. */
  asked: AskedImage[];
  close(): Promise<void>;
}

/** An answer instead of a drawing. */
export type OtherAnswer = { status?: number; body: unknown } | undefined;

interface Options {
  port?: number;
  /** Changes the answers of some requests. */
  answer?: (asked: AskedImage) => OtherAnswer | Promise<OtherAnswer>;
}

const KEPT_REQUESTS = 100;
const MAX_BODY_BYTES = 64 * 1024 * 1024;
const SIZE = { width: 256, height: 256 };

/** Serves on the loopback address. Port 0 takes a free one. */
export async function serveImages({ port = 0, answer }: Options = {}): Promise<ImageServer> {
  const asked: AskedImage[] = [];
  const server = createServer((request, response) => {
    handle(request, once(response, "close"), { asked, answer })
      .catch((error: unknown) => ({ status: error instanceof BadRequest ? 400 : 500, body: detail(String(error)) }))
      .then((answered) => send(response, answered));
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

class BadRequest extends Error {}

interface Answer {
  status?: number;
  body: unknown;
}

function send(response: ServerResponse, { status = 200, body }: Answer): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(typeof body === "string" ? body : JSON.stringify(body));
}

/** In FastAPI's form of errors. */
function detail(message: string): object {
  return { detail: message };
}

async function handle(
  request: IncomingMessage,
  closed: Promise<unknown>,
  { asked, answer }: Pick<Options, "answer"> & Pick<ImageServer, "asked">,
): Promise<Answer> {
  const { pathname: path } = new URL(request.url ?? "/", "http://here");
  if (path === "/health") return { body: {} };
  if (path === "/v1/models") {
    return { body: { object: "list", data: [{ id: IMAGE_SERVER_MODEL, object: "model", owned_by: "sglang" }] } };
  }
  if (path !== "/v1/images/generations" && path !== "/v1/images/edits")
    return { status: 404, body: detail("Not Found") };
  const read = await fieldsOf(request);
  const headers = Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)]));
  const seen = { path, headers, closed, ...read };
  asked.push(seen);
  if (asked.length > KEPT_REQUESTS) asked.shift();
  return (await answer?.(seen)) ?? { body: drawn(seen) };
}

function drawn({ path, fields, images }: AskedImage): object {
  const { prompt, size, output_format: format = "png", background, response_format: shape, n = 1 } = fields;
  if (typeof prompt !== "string") throw new BadRequest("Field 'prompt' is required");
  if (format !== "png") throw new BadRequest("This server draws PNG only");
  if (shape !== "b64_json") throw new BadRequest("response_format='url' requires cloud storage to be configured.");
  if (path.endsWith("edits") && images.length === 0) throw new BadRequest("Field 'image' is required");
  const bases = images.map((bytes) => decodePng(bytes) ?? refuse("An image is no PNG that this server reads"));
  const options = { ...sizeOf(size), base: bases[0], isTransparent: background === "transparent" };
  const image = encodePng(draw(prompt, options)).toString("base64");
  const data = Array.from({ length: Number(n) }, () => ({ b64_json: image, url: null, revised_prompt: null }));
  return { created: 0, data, output_format: "png" };
}

function refuse(message: string): never {
  throw new BadRequest(message);
}

function sizeOf(size: unknown): { width: number; height: number } {
  if (size === undefined || size === "auto") return SIZE;
  const [, width, height] = /^(\d+)x(\d+)$/.exec(String(size)) ?? refuse("Invalid size");
  return { width: Number(width), height: Number(height) };
}

async function fieldsOf(request: IncomingMessage): Promise<Pick<AskedImage, "fields" | "images">> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > MAX_BODY_BYTES) throw new BadRequest("The body is too large");
    chunks.push(chunk);
  }
  const bytes = Buffer.concat(chunks);
  const type = request.headers["content-type"] ?? "";
  if (!type.startsWith("multipart/form-data")) {
    return { fields: JSON.parse(bytes.toString()) as Record<string, unknown>, images: [] };
  }
  const form = await new Response(bytes, { headers: { "content-type": type } }).formData();
  const fields: Record<string, unknown> = {};
  const images: Buffer[] = [];
  for (const [name, value] of form) {
    if (typeof value === "string") fields[name] = value;
    else images.push(Buffer.from(await value.arrayBuffer()));
  }
  return { fields, images };
}
