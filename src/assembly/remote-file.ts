import { FetchFault, guardedFetch } from "@responses-edge/outgoing-fetch/guarded";
import { type ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import type { Config } from "../config/index.ts";

/** A file's bytes, name and type. */
export interface FileBytes {
  bytes: Uint8Array<ArrayBuffer>;
  filename: string;
  mimeType?: string | undefined;
}

interface FetchOptions {
  config: Pick<Config, "tools" | "files">;
  signal: AbortSignal;
  maxBytes: number;
  /** Takes the memory for a number of bytes. */
  hold: (length: number) => void;
  /** The client's field that names the URL. */
  param: string;
}

/**
 * Fetches a file from the web, under the same guard as calls of MCP servers and the browser. Throws the 400 of an
 * address that may not be called, of a server that does not give the file in time, and of a file that is too large; the
 * errors of `hold`; and the signal's reason.
 */
export async function fetchFile(
  url: string,
  { config: { tools, files }, signal, maxBytes, hold, param }: FetchOptions,
): Promise<FileBytes> {
  const guard = { ...tools.guard, timeoutMs: files.readTimeoutMs, maxBytes };
  try {
    const response = await guardedFetch(url, { headers: { accept: "*/*" }, signal }, guard);
    if (!response.ok) {
      await response.body?.cancel();
      throw notDownloaded(param, `Its server answered with status ${response.status}.`);
    }
    hold(Math.min(maxBytes, Number(response.headers.get("content-length") ?? 0)));
    const bytes = new Uint8Array(await response.arrayBuffer());
    hold(bytes.length);
    const mimeType = response.headers.get("content-type") ?? undefined;
    return { bytes, filename: nameIn(response.url) ?? "unnamed", mimeType };
  } catch (error) {
    if (!(error instanceof FetchFault)) throw error;
    if (error.kind === "too_large") throw tooLarge(maxBytes, param);
    if (error.kind === "refused_address") throw invalidRequest(param, error.message, "invalid_url");
    throw notDownloaded(param, error.message);
  }
}

/** The last segment of a URL's path. */
function nameIn(url: string): string | undefined {
  const name = new URL(url).pathname.split("/").at(-1) ?? "";
  try {
    return decodeURIComponent(name) || undefined;
  } catch {
    return name;
  }
}

/** The 400 of a file that is too large to be read. */
export function tooLarge(maxBytes: number, param: string): ApiError {
  return invalidRequest(param, `The file is too large: the limit is ${maxBytes} bytes.`, "file_too_large");
}

function notDownloaded(param: string, reason: string): ApiError {
  return invalidRequest(param, `The file could not be downloaded. ${reason}`, "invalid_value");
}
