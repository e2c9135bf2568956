import type { Parsed } from "./json.ts";
import { session } from "./session.ts";

/** Calls of this server's API. The key goes in a header, never in a URL. */

/** An error that the API returned, or a failure to reach it. */
export class ApiFault extends Error {
  status: number;
  code: string | null;
  param: string | null;

  /** @param fields `status` is 0 if there was no answer. */
  constructor(
    message: string,
    { status = 0, code = null, param = null }: { status?: number; code?: string | null; param?: string | null } = {},
  ) {
    super(message);
    this.name = "ApiFault";
    this.status = status;
    this.code = code;
    this.param = param;
  }
}

/** Called with the server's message when the server refuses the key. */
let onKeyRefused: (message: string) => void = () => {};

/** @param listener Takes the server's message. */
export function whenKeyIsRefused(listener: (message: string) => void) {
  onKeyRefused = listener;
}

/** Tells the shell that the server refuses the key. */
export function tellKeyRefused(message: string) {
  onKeyRefused(message);
}

export interface Call {
  /** by default GET, or POST if there is a body */
  method?: string;
  /** sent as JSON */
  body?: unknown;
  signal?: AbortSignal;
  /** used instead of the session's */
  key?: string;
  /** statuses that are not errors for this call */
  alsoGood?: readonly number[];
}

/**
 * The answer to a call. Throws an ApiFault if the status is an error, and the AbortError of `signal`.
 * @param path such as `/v1/models`
 */
export async function call(
  path: string,
  { body, method = body === undefined ? "GET" : "POST", signal, key = session.key, alsoGood = [] }: Call = {},
): Promise<Response> {
  const headers: Record<string, string> = { accept: "application/json" };
  if (key !== undefined) headers.authorization = `Bearer ${key}`;
  // The server wants this of browsers also where there is no body.
  if (method !== "GET") headers["content-type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "same-origin",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiFault("The server could not be reached. Is it running, and is this machine online?");
  }
  if (response.ok || alsoGood.includes(response.status)) return response;
  const fault = await faultOf(response);
  if (response.status === 401 && key === session.key) tellKeyRefused(fault.message);
  throw fault;
}

/** The same, as parsed JSON. */
export async function callJson(path: string, options?: Call): Promise<Parsed> {
  const response = await call(path, options);
  return response.json();
}

async function faultOf(response: Response): Promise<ApiFault> {
  return faultIn(await response.text().catch(() => ""), response.status);
}

function faultIn(text: string, status: number) {
  try {
    const { error } = JSON.parse(text);
    return new ApiFault(String(error.message), { status, code: error.code, param: error.param });
  } catch {
    return new ApiFault(`The server answered with status ${status}.`, { status });
  }
}

/**
 * Uploads a file. `fetch` does not say how much has been sent. Throws an ApiFault, and the reason of `signal`.
 * @param fields of the form beside it
 * @returns the file as the API has it
 */
export function uploadFile(
  file: File,
  fields: Record<string, string>,
  { signal, progress }: { signal: AbortSignal; progress: (bytes: number) => void },
): Promise<Parsed> {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  form.set("file", file);
  const request = new XMLHttpRequest();
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    signal.addEventListener("abort", () => {
      request.abort();
      reject(signal.reason);
    });
    request.upload.addEventListener("progress", ({ loaded }) => progress(Math.min(loaded, file.size)));
    request.addEventListener("error", () =>
      reject(new ApiFault("The upload broke off: the file is no longer readable, or the server is not reachable.")),
    );
    request.addEventListener("load", () => {
      if (request.status === 200) return resolve(JSON.parse(request.responseText));
      const fault = faultIn(request.responseText, request.status);
      if (request.status === 401) tellKeyRefused(fault.message);
      reject(fault);
    });
    request.open("POST", "/v1/files");
    if (session.key !== undefined) request.setRequestHeader("authorization", `Bearer ${session.key}`);
    request.send(form);
  });
}
