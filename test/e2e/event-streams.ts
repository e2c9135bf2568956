import { isObject } from "../../dev/simulator/json.ts";
import type { Gateway } from "./support.ts";

/** Event streams as bytes: those that a reader has of a run, and those that it should have. */

const DONE = "data: [DONE]";

/** The frames of a whole stream without heartbeats: one per event, and `data: [DONE]`. */
export function framesOf(stream: string): string[] {
  return stream.split("\n\n").filter((frame) => frame !== "" && !frame.startsWith(":"));
}

/** The rest of a stream for a reader that has the first `count` events. */
export function streamFrom(stream: string, count: number): string {
  const frames = framesOf(stream);
  const events = frames.slice(0, -1).slice(count);
  return [...events, ...frames.slice(-1)].map((frame) => `${frame}\n\n`).join("");
}

export const withoutHeartbeats = (stream: string) => stream.replaceAll(": heartbeat\n\n", "");

export const isWhole = (stream: string) => stream.endsWith(`\n\n${DONE}\n\n`) || stream === `${DONE}\n\n`;

/** The types of the events. Consecutive deltas count once. */
export function typesOf(stream: string): string[] {
  return framesOf(stream)
    .filter((frame) => frame !== DONE)
    .map((frame) => frame.slice("event: ".length, frame.indexOf("\n")))
    .filter((type, index, all) => type !== all[index - 1]);
}

/** The number of events of a stream. */
export const eventCount = (stream: string) => framesOf(stream).filter((frame) => frame !== DONE).length;

/** `GET /v1/responses/{id}?stream=true&…`, without waiting for its end. */
export function resume(gateway: Gateway, id: string, query = "", init?: RequestInit): Promise<Response> {
  return gateway.fetch(`${gateway.url}/v1/responses/${id}?stream=true${query}`, init);
}

/** The bytes of a resumed stream, to its end. */
export async function replay(gateway: Gateway, id: string, query = ""): Promise<string> {
  const answer = await resume(gateway, id, query);
  if (answer.status !== 200) throw new Error(`Status ${answer.status}: ${await answer.text()}`);
  return answer.text();
}

/** The id in the first event of a stream that another reader continues. */
export function idIn(stream: string): string {
  const id = /"id":"(resp_\w+)"/.exec(stream)?.[1];
  if (id === undefined) throw new Error("The stream names no response.");
  return id;
}

/** vLLM's requests for this model name. */
export function generationsOf(gateway: Gateway, model: string) {
  return gateway.vllm.simulator.requests.filter(
    ({ path, body }) => path === "/v1/chat/completions" && isObject(body) && body.model === model,
  );
}
