import type { ModelServerConfig } from "@responses-edge/engines/settings";

/** Requests of the command itself to a model server. */

/** The time that a model server has to answer. Milliseconds. */
export const TIMEOUT_MS = 5_000;

/** The fields of a card that are read here. They may be anything. */
export interface ModelCard {
  id?: unknown;
  root?: unknown;
  parent?: unknown;
  owned_by?: unknown;
}

/** Asks a path below `/v1`, or from the root if it begins with `//`; by POST with a body. */
export function ask({ baseUrl, apiKey, headers }: ModelServerConfig, path: string, body?: object): Promise<Response> {
  const url = path.startsWith("//") ? baseUrl.replace(/\/v1$/, "") + path.slice(1) : baseUrl + path;
  const authorization = apiKey === undefined ? undefined : { authorization: `Bearer ${apiKey}` };
  return fetch(url, {
    headers: { ...headers, ...authorization, ...(body && { "content-type": "application/json" }) },
    ...(body && { method: "POST", body: JSON.stringify(body) }),
    redirect: "manual",
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
}

/** Tells whether a status is a refusal of the key, or of its absence. */
export function isKeyRefusal(status: number): boolean {
  return status === 401 || status === 403;
}
