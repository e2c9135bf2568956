/** A `fetch` that checks every answer of the Responses API, and changes none. */
import type { Response as ResponseObject } from "openai/resources/responses/responses";
import type { ApiDescription } from "./api-description.ts";
import { type CheckedStream, checkEventStream, checkWithOpenAiNode, parseEventStream } from "./event-stream.ts";
import {
  deletionViolations,
  errorBodyViolations,
  isJsonType,
  listViolations,
  objectViolations,
  parseJson,
} from "./other-bodies.ts";
import { echoViolations, isTerminal, responseViolations } from "./response-body.ts";
import type { WireEvent } from "./sse-parser.ts";
import { difference } from "./stream-rules.ts";
import { type StreamOptions, sameJson } from "./stream-trace.ts";
import { ConformanceError, isObject, type JsonObject, show, violationsIn } from "./violations.ts";

export type ConformantFetch = typeof fetch & {
  /** The violations so far, each with its request: `POST /v1/responses: #9 …`. Clear it with `.length = 0`. */
  readonly violations: string[];
  /**
   * Waits for all checks, and checks the received part of streams that are still open.
   *
   * @throws {ConformanceError} when there were violations, and forgets them
   */
  settled(): Promise<void>;
};

/** The facts about each response that one fetch has received. */
interface Memory {
  /** The final object of a stream or a body. */
  readonly final: Map<string, ResponseObject>;
  /** Stream events by sequence number, to compare a replay with. */
  readonly events: Map<string, Map<number, unknown>>;
  /** Responses with a request to cancel them. */
  readonly cancelled: Set<string>;
}

/** One request, with the fields that the checks need. */
interface Exchange {
  readonly method: string;
  readonly url: URL;
  /** The JSON body sent; empty when there was none. */
  readonly sent: JsonObject;
  /** The JSON body that was sent, of any type; undefined when there was none. */
  readonly body: unknown;
}

/**
 * Wraps `base`, to be given to the `openai` client or called directly.
 *
 * Server-sent events are passed on chunk by chunk as they come, and checked when the stream ends. A stream that its
 * reader or the network cuts off is checked only as far as it got.
 *
 * @param description what the server says of itself, where all that passes is to be held to that, too
 */
export function conformantFetch(base: typeof fetch = fetch, description?: ApiDescription): ConformantFetch {
  const violations: string[] = [];
  const pending = new Set<Promise<void>>();
  const open = new Set<() => void>();
  const memory: Memory = { final: new Map(), events: new Map(), cancelled: new Set() };

  const track = (exchange: Exchange, check: () => Promise<readonly string[]>): void => {
    const label = `${exchange.method} ${exchange.url.pathname}${exchange.url.search}`;
    const running = check()
      .catch(violationsIn)
      .then((found) => {
        violations.push(...found.map((violation) => `${label}: ${violation}`));
        pending.delete(running);
      });
    pending.add(running);
  };

  const checkedFetch = async (...[input, init]: Parameters<typeof fetch>): Promise<Response> => {
    const exchange = exchangeOf(input, init);
    const cancelledId = /\/responses\/([^/]+)\/cancel$/.exec(exchange.url.pathname)?.[1];
    if (cancelledId !== undefined) memory.cancelled.add(cancelledId);
    const answer = await base(input, init);
    // Removes the note, which was made before the answer because the stream may end first: after a refused cancellation
    // the end must not be missing.
    if (cancelledId !== undefined && !answer.ok) memory.cancelled.delete(cancelledId);
    const contentType = answer.headers.get("content-type");
    // Both checks read one copy, which is made before anybody reads the answer.
    let copied: Promise<string | undefined> | undefined;
    const textOf = () => (copied ??= readText(answer.clone()));
    if (description) track(exchange, () => describedViolations(description, exchange, answer, textOf));
    // The answer of `/responses/render` is the model server's own, and an export has lines.
    if (exchange.url.pathname.endsWith("/export")) return answer;
    if (!/\/(responses|conversations)(\/(?!render$)|$)/.test(exchange.url.pathname)) return answer;

    if (answer.status === 200 && /^text\/event-stream\s*(;|$)/i.test(contentType ?? "") && answer.body !== null) {
      const recording = record(answer.body, (bytes, ended) => {
        open.delete(recording.stop);
        track(exchange, () => streamViolations(bytes, ended, exchange, memory, description));
      });
      open.add(recording.stop);
      const { status, statusText, headers } = answer;
      const passed = new Response(recording.stream, { status, statusText, headers });
      return Object.defineProperty(passed, "url", { value: answer.url });
    }
    if (answer.status === 101 || answer.status === 204 || exchange.method === "HEAD" || exchange.method === "OPTIONS") {
      return answer;
    }
    track(exchange, async () => {
      const text = await textOf();
      // The reader has cancelled, so there is no answer to check.
      if (text === undefined) return [];
      if (answer.status >= 400) return errorBodyViolations(text, contentType);
      if (answer.status !== 200) return [];
      if (wantsStream(exchange)) return [`#7 a stream was asked for, content-type is ${contentType}`];
      if (!isJsonType(contentType)) return [`#21 content-type is ${contentType}`];
      return bodyViolations(parseJson(text), exchange, memory);
    });
    return answer;
  };

  const settled = async (): Promise<void> => {
    for (const stop of open) stop();
    while (pending.size > 0) await Promise.all(pending);
    const found = violations.splice(0);
    if (found.length > 0) throw new ConformanceError("What the server answered", found);
  };
  return Object.assign(checkedFetch, { violations, settled });
}

/** The differences of an exchange from the server's description. The events of streams are checked one by one. */
async function describedViolations(
  description: ApiDescription,
  { method, url, body }: Exchange,
  { status, headers }: Response,
  textOf: () => Promise<string | undefined>,
): Promise<readonly string[]> {
  const contentType = headers.get("content-type");
  const exchange = { method, url, status, contentType, sent: body };
  if (method === "HEAD" || !isJsonType(contentType)) return description.violations(exchange);
  const text = await textOf();
  return text === undefined ? [] : description.violations({ ...exchange, answered: parseJson(text) });
}

interface Recording {
  readonly stream: ReadableStream<Uint8Array>;
  /** Ends the recording, not the stream, with the bytes that have passed so far. */
  readonly stop: () => void;
}

/**
 * Passes a body through, chunk by chunk. At the end it calls `finished` with the bytes that passed; `ended` is true
 * unless the body was cut off.
 */
function record(source: ReadableStream<Uint8Array>, finished: (bytes: Uint8Array, ended: boolean) => void): Recording {
  const reader = source.getReader();
  const chunks: Uint8Array[] = [];
  let over = false;
  const finish = (ended: boolean): void => {
    if (over) return;
    over = true;
    finished(Buffer.concat(chunks), ended);
  };
  const stream = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (done) {
            finish(true);
            controller.close();
            return;
          }
          // A copy: the reader may transfer the chunk's buffer.
          if (!over) chunks.push(value.slice());
          controller.enqueue(value);
        } catch (error) {
          finish(false);
          controller.error(error);
        }
      },
      async cancel(reason) {
        finish(false);
        await reader.cancel(reason);
      },
    },
    // No chunk is read before its reader wants it.
    { highWaterMark: 0 },
  );
  return { stream, stop: () => finish(false) };
}

async function streamViolations(
  bytes: Uint8Array,
  ended: boolean,
  exchange: Exchange,
  memory: Memory,
  description?: ApiDescription,
): Promise<readonly string[]> {
  const stream = parseEventStream(bytes, { partial: !ended });
  const violationsOf = description?.streamedViolations(exchange);
  const undescribed = stream.events.flatMap(({ data }) => violationsOf?.(data) ?? []);
  // A client that stops reading at [DONE], as openai-node does, has read the whole stream.
  const partial = !ended && !stream.done;
  const id = responseIdOf(stream.events, exchange);
  const startingAfter = Number(askedOfReplay(exchange).starting_after ?? Number.NaN);
  const replaying = Number.isInteger(startingAfter);
  const known = memory.events.get(id) ?? new Map<number, unknown>();
  const violations = [...undescribed, ...replayViolations(stream.events, known)];

  // A replay that starts later is checked together with the beginning, if this is known.
  const prefix = replaying ? eventsUpTo(known, startingAfter) : [];
  const whole = { ...stream, events: [...(prefix ?? []), ...stream.events] };
  const options: StreamOptions = { ...optionsOf(exchange), partial, cancelled: memory.cancelled.has(id) };
  if (prefix === undefined) options.startingAfter = startingAfter;
  else if (replaying) {
    // The beginning had options of its own.
    options.obfuscation = undefined;
    options.logprobs = undefined;
  }
  let checked: CheckedStream;
  try {
    checked = checkEventStream(whole, options);
  } catch (error) {
    violations.push(...violationsIn(error));
    // openai-node would only repeat the known violations, less clearly.
    return violations;
  }

  for (const { data } of stream.events) if (isObject(data)) known.set(Number(data.sequence_number), data);
  memory.events.set(id, known);
  const { response } = checked;
  if (response !== undefined) {
    if (exchange.method === "POST" && !isReplay(exchange)) violations.push(...echoViolations(exchange.sent, response));
    violations.push(...rememberFinal(response, memory));
  }
  if (!partial && !replaying && !memory.cancelled.has(id)) {
    await checkWithOpenAiNode(
      bytes,
      checked.events.some(({ type }) => type === "error"),
    );
  }
  return violations;
}

/** Check 36: a replay gives the very events of the first stream; only `obfuscation` may differ, and the fields of `include`. */
function replayViolations(events: readonly WireEvent[], known: ReadonlyMap<number, unknown>): string[] {
  const violations: string[] = [];
  for (const { data } of events) {
    if (!isObject(data)) continue;
    const before = known.get(Number(data.sequence_number));
    if (!isObject(before)) continue;
    const now = withoutIncludes(withoutObfuscation(data));
    const then = withoutIncludes(withoutObfuscation(before));
    if (!sameJson(now, then)) {
      violations.push(`#36 replay: event ${show(data.sequence_number)} has ${difference(now, then)} as before`);
    }
  }
  return violations;
}

function withoutObfuscation(event: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(event).filter(([key]) => key !== "obfuscation"));
}

/** The events 0 to `last`; undefined when one of them was not seen. */
function eventsUpTo(known: ReadonlyMap<number, unknown>, last: number): WireEvent[] | undefined {
  const events: WireEvent[] = [];
  for (let sequence = 0; sequence <= last; sequence++) {
    const data = known.get(sequence);
    if (!isObject(data)) return undefined;
    events.push({ name: String(data.type), data });
  }
  return events;
}

/** `POST /v1/responses/{id}/replay`. */
const isReplay = ({ url }: Exchange) => url.pathname.endsWith("/replay");

/** The fields of a request for events that were sent before: of a query, or of a replay's body. */
function askedOfReplay(exchange: Exchange): JsonObject {
  return isReplay(exchange) ? exchange.sent : Object.fromEntries(exchange.url.searchParams);
}

function responseIdOf(events: readonly WireEvent[], exchange: Exchange): string {
  const fromPath = /\/responses\/([^/]+)(\/replay)?$/.exec(exchange.url.pathname)?.[1];
  if (fromPath !== undefined) return fromPath;
  const data = events[0]?.data;
  return isObject(data) && isObject(data.response) ? String(data.response.id) : "";
}

function optionsOf(exchange: Exchange): StreamOptions {
  const { method, sent } = exchange;
  if (method !== "POST" || isReplay(exchange)) {
    const wanted = askedOfReplay(exchange).include_obfuscation;
    return { obfuscation: wanted == null ? undefined : String(wanted) === "true" };
  }
  const streamOptions = isObject(sent.stream_options) ? sent.stream_options : {};
  const wanted = streamOptions.include_obfuscation;
  const include: unknown[] = Array.isArray(sent.include) ? sent.include : [];
  return {
    obfuscation: typeof wanted === "boolean" ? wanted : undefined,
    logprobs: include.includes("message.output_text.logprobs"),
    background: sent.background === true,
    prepared:
      sent.generate === false || (isObject(sent.prompt_cache_options) && sent.prompt_cache_options.prewarm === true),
  };
}

/** The violations of a JSON body with status 200. */
function bodyViolations(body: unknown, exchange: Exchange, memory: Memory): readonly string[] {
  if (!isObject(body)) return [`#21 the body is not a JSON object: ${show(body)}`];
  if ("deleted" in body && body.object !== "conversation.deleted") return deletionViolations(body, exchange.url);
  if (body.object === "list") return listViolations(body, exchange.url);
  if (body.object === "response") {
    const violations = responseViolations(body);
    if (violations.length > 0) return violations;
    const response = body as unknown as ResponseObject;
    if (exchange.method === "POST" && exchange.url.pathname.endsWith("/responses")) {
      violations.push(...echoViolations(exchange.sent, response));
    }
    return [...violations, ...rememberFinal(response, memory, exchange)];
  }
  const known = objectViolations(body);
  if (known !== undefined) return known;
  // GET of one conversation item answers with the item itself.
  if (exchange.url.pathname.includes("/conversations/")) return [];
  return [`#21 the body has unknown object ${show(body.object)}`];
}

/** Check 18: the final snapshot and every later body are the same response, except for metadata that were changed. */
function rememberFinal(response: ResponseObject, memory: Memory, exchange?: Exchange): string[] {
  if (!isTerminal(response)) return [];
  const known = memory.final.get(response.id);
  const before = known && exchange && isChange(exchange) ? { ...known, metadata: metadataOf(exchange) } : known;
  if (before === undefined || before !== known) memory.final.set(response.id, response);
  if (before === undefined) return [];
  const [now, then] = [withoutIncludes(response), withoutIncludes(before)];
  return sameJson(now, then) ? [] : [`#18 final object: ${difference(now, then)} as before`];
}

const isChange = ({ method, url }: Exchange) => method === "POST" && /\/responses\/resp_[^/]+$/.test(url.pathname);

function metadataOf({ sent }: Exchange): ResponseObject["metadata"] {
  return (sent.metadata ?? {}) as ResponseObject["metadata"];
}

/** A response without the fields that `include` may add, since two requests may differ in them. */
function withoutIncludes(response: object): object {
  const copy: unknown = JSON.parse(
    JSON.stringify(response, (key, value: unknown) => {
      return key === "logprobs" || key === "encrypted_content" || key === "timing" ? undefined : value;
    }),
  );
  return isObject(copy) ? copy : {};
}

function exchangeOf(...[input, init]: Parameters<typeof fetch>): Exchange {
  const request = input instanceof Request ? input : undefined;
  const url = new URL(request?.url ?? String(input));
  const body = typeof init?.body === "string" ? parseJson(init.body) : undefined;
  const method = (init?.method ?? request?.method ?? "GET").toUpperCase();
  return { method, url, sent: isObject(body) ? body : {}, body };
}

function wantsStream({ method, url, sent }: Exchange): boolean {
  if (method === "GET") return url.searchParams.get("stream") === "true";
  return method === "POST" && url.pathname.endsWith("/responses") && sent.stream === true;
}

async function readText(answer: Response): Promise<string | undefined> {
  try {
    return await answer.text();
  } catch {
    return undefined;
  }
}
