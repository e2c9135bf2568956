import type { Config } from "../config/index.ts";
import type { ServerAttempt } from "../contract/server-attempt.ts";
import type { Body } from "../engine/model-server.ts";
import { Upstream } from "../engine/upstream.ts";
import { malformedAnswer } from "../engine/upstream-faults.ts";
import { type Affinity, sessionOf } from "./session.ts";

/** A request of a client's that goes to a model server as it is, and an answer that comes back as it is. */
export interface PassedRequest {
  /** Below `/v1`, or from the server's root when it begins with `//`. */
  path: string;
  body: Body;
  /** The type of a body that is no JSON. */
  contentType?: string | undefined;
  /** The model's name at vLLM; undefined: the server's own. */
  model: string | undefined;
  tenant: string;
  affinity: Affinity;
  /** True if the answer is a stream. Its headers come at once, those of another answer once all of it is made. */
  isStream: boolean;
}

export interface PassedAnswer {
  type: string;
  body: ReadableStream<Uint8Array> | null;
  /** The name of the server that answers. */
  server: string;
  /** Resolves when the bytes have ended, whichever way. */
  ended: Promise<void>;
}

/**
 * Asks a model server as a turn would: the one that the request's session leads to, and another one where it cannot answer. Throws
 * ApiError as `Upstream.request` does, of what is about the request in vLLM's own words.
 */
export async function passOn(
  { path, body, contentType, model, tenant, affinity, isStream }: PassedRequest,
  config: Config,
  { signal, onAttempt }: { signal: AbortSignal; onAttempt?: ((call: ServerAttempt) => void) | undefined },
): Promise<PassedAnswer> {
  const session = sessionOf({ tenant, home: "", turn: "", affinity }, model ?? "");
  const upstream = new Upstream(config, { model, session, onAttempt: onAttempt });
  const withinMs = isStream ? undefined : config.firstByteTimeoutMs;
  const response = await upstream.request(path, signal, body, { withinMs, contentType, isPassedOn: true });
  const { readable, ended } = upstream.bytes(response);
  const type = response.headers.get("content-type") ?? "application/octet-stream";
  if (type.startsWith("text/html")) {
    // A page of a proxy's, for people: no endpoint answers with one.
    await readable?.cancel();
    throw malformedAnswer();
  }
  return { type, body: readable, server: upstream.server.config.name, ended };
}
