import type { RequestOptions } from "@responses-edge/engines/model-server";
import { type BodyFor, Upstream } from "@responses-edge/engines/upstream";
import { malformedAnswer } from "@responses-edge/engines/upstream-faults";
import { isJsonObject, type JsonObject } from "@responses-edge/responses-api/json";
import type { Config } from "../config/index.ts";
import type { OwnModel } from "../config/upstreams.ts";

/** Asks a model with a task of its own, at its own server or at one of the pool. */

interface Asked extends Pick<RequestOptions, "contentType"> {
  config: Config;
  signal: AbortSignal;
  /** Milliseconds until its headers must have come. */
  withinMs?: number;
}

/** The configuration by which a model is asked: only its own server, if it has one. */
export function configOf({ server }: OwnModel, config: Config): Config {
  return server ? { ...config, modelServers: [server], unsaltedServers: undefined, boardMs: 0 } : config;
}

/**
 * Gives the text of an answer. Throws ApiError as `Upstream.request` and `text` do; errors about the request keep the
 * server's own text.
 */
export async function askOwnModel(
  model: OwnModel,
  path: string,
  body: BodyFor,
  { config, signal, contentType, withinMs = config.firstByteTimeoutMs }: Asked,
): Promise<string> {
  const upstream = new Upstream(configOf(model, config), { model: model.name });
  const response = await upstream.request(path, signal, body, { withinMs, contentType, isPassedOn: true });
  return upstream.text(response, signal, config.connectTimeoutMs);
}

/** The JSON object of an answer's text. Throws ApiError 502 if the text is not a JSON object. */
export function jsonOf(text: string): JsonObject {
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch {
    throw malformedAnswer();
  }
  if (!isJsonObject(answer)) throw malformedAnswer();
  return answer;
}
