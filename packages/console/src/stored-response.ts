import { ApiFault, callJson } from "./api.ts";
import type { Arrival } from "./arrivals.ts";
import type { ApiObject } from "./json.ts";

const STORED_PAUSE_MS = 1_000;

/** The texts of the messages among output items. */
export function textOf(output: readonly ApiObject[]): string {
  const parts = output.flatMap(({ type, content }) => (type === "message" ? (content ?? []) : []));
  return parts.map((part: ApiObject) => part.text ?? part.refusal ?? "").join("\n\n");
}

/** Tells whether a response has no text, no refusal, and no call of anything. */
export function saysNothing({ output = [] }: ApiObject) {
  return output.every(({ type }: ApiObject) => ["message", "reasoning"].includes(type)) && textOf(output).trim() === "";
}

/** Items of an input that are read at once. */
const PAGE_LENGTH = 100;

/** The beginning of a response's own input. */
export function inputItems(id: string, signal: AbortSignal) {
  return callJson(`/v1/responses/${encodeURIComponent(id)}/input_items?order=asc&limit=${PAGE_LENGTH}`, { signal });
}

/** A stored response; one that is being stored is waited for. */
export async function retrieve(id: string, attempts: number, signal: AbortSignal) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await callJson(`/v1/responses/${encodeURIComponent(id)}?include[]=timing`, { signal });
    } catch (error) {
      if (!(error instanceof ApiFault) || error.status !== 404 || attempt >= attempts) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, STORED_PAUSE_MS));
  }
}

/** Tells whether a response has not ended. */
export function runs({ status }: ApiObject) {
  return status === "queued" || status === "in_progress";
}

/** A response that was read as a whole, as the last event of a stream. */
export async function* whole(response: ApiObject): AsyncGenerator<Arrival> {
  const event = { type: "response.completed", response };
  yield { json: JSON.stringify(event), event };
}
