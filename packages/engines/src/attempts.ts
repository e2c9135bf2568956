import type { HttpAnswer } from "@responses-edge/outgoing-fetch/socket";
import { ApiError } from "@responses-edge/responses-api/errors";
import type { ServerAttempt } from "@responses-edge/turn/contract/engine";
import { blameFor } from "./blame.ts";
import type { Dialect } from "./dialects/dialect.ts";
import { certainDialect, learnDialect } from "./model-lists.ts";
import { expectModel, noteRefused, watchModel } from "./model-names.ts";
import { answeredStatus, type Body, type ModelServer, type RequestOptions } from "./model-server.ts";
import { noteUnusable, noteUsable, STATUSES } from "./server-status.ts";
import type { UpstreamConfig } from "./settings.ts";
import { checkSeparation } from "./tenant-separation.ts";
import { unsuited } from "./upstream-faults.ts";

/** One request to one of the model servers. */

/** A body, or a function that makes it for a kind of server. */
export type BodyFor = Body | ((dialect: Dialect) => Body | Promise<Body>);

export interface Sending {
  path: string;
  signal: AbortSignal;
  body: BodyFor | undefined;
  /** 1 for the first server that gets the request. */
  attempt: number;
  options: RequestOptions | undefined;
  /** The requirements with which the request was made, perhaps before the server's kind was known. */
  needs: ((dialect: Dialect) => boolean) | undefined;
}

/**
 * Sends a request to a server, in the form of its kind, which is asked for first if it is unknown. Throws as
 * `ModelServer.request` and `learnDialect` do, the 400 of a model that the server lacks, the 502 of a kind for which the
 * request was not made, and the 503 if it may not get prompts.
 */
export async function sendTo(
  server: ModelServer,
  { path, signal, body, attempt, options, needs }: Sending,
  { unsaltedServers, connectTimeoutMs }: Pick<UpstreamConfig, "unsaltedServers" | "connectTimeoutMs">,
  { model, onAttempt }: { model?: string | undefined; onAttempt?: ((call: ServerAttempt) => void) | undefined },
): Promise<HttpAnswer> {
  let sent: Body | undefined;
  let expectServed: (() => Promise<void>) | undefined;
  if (body !== undefined) {
    const withinMs = Math.min(connectTimeoutMs, options?.withinMs ?? connectTimeoutMs);
    const dialect = certainDialect(server, signal) ?? (await learnDialect(server, signal, withinMs));
    if (needs && !needs(dialect)) throw unsuited(dialect.title);
    if (unsaltedServers !== undefined) checkSeparation(server, unsaltedServers);
    const { models } = server.config;
    // The names of an operator's own list need not be the server's.
    const isAnyAnswered = dialect.answersAnyModel && model !== undefined && !models;
    if (isAnyAnswered) await expectModel(server, model, signal);
    const made = typeof body === "function" ? await body(dialect) : body;
    const there = model === undefined ? undefined : models?.get(model);
    sent = there === undefined || there === model ? made : renamed(made, model, there);
    if (isAnyAnswered) expectServed = watchModel(server, model, signal);
  }
  try {
    const response = onAttempt
      ? await reported(onAttempt, { server: server.config.name, path, attempt }, () =>
          server.request(path, signal, sent, options),
        )
      : await server.request(path, signal, sent, options);
    if (expectServed) await expectServed().catch((fault: unknown) => giveUp(server, response, fault));
    if (options?.isPassedOn && STATUSES.get(server.baseUrl)?.unusable) noteUsable(server);
    return response;
  } catch (fault) {
    if ((options?.isTokenStream !== undefined || options?.isPassedOn) && fault instanceof ApiError && !signal.aborted) {
      noteUnusable(server, fault);
    }
    if (model !== undefined && fault instanceof ApiError && blameFor(fault) === "model") noteRefused(server, model);
    throw fault;
  }
}

/** Closes a request whose answer cannot be used. Throws the fault. */
function giveUp(server: ModelServer, response: HttpAnswer, fault: unknown): never {
  server.close(response);
  throw fault;
}

/** Makes a request, and reports it. Rejects as the request does. */
async function reported(
  onAttempt: (call: ServerAttempt) => void,
  of: Pick<ServerAttempt, "server" | "path" | "attempt">,
  ask: () => Promise<HttpAnswer>,
): Promise<HttpAnswer> {
  const call = { ...of, sentAt: Date.now() };
  try {
    const response = await ask();
    onAttempt({ ...call, status: response.status, fault: undefined, text: undefined, answeredAt: Date.now() });
    return response;
  } catch (error) {
    const known = error instanceof ApiError ? error : undefined;
    const status = known && answeredStatus(known);
    onAttempt({ ...call, status, fault: known?.code ?? "aborted", text: known?.upstream, answeredAt: Date.now() });
    throw error;
  }
}

/** A body with the server's own name of the model. A form keeps its name. */
function renamed(body: Body, model: string | undefined, there: string): Body {
  if (typeof body !== "string") return body;
  const beginning = `{"model":${JSON.stringify(model)}`;
  if (body.startsWith(beginning)) return `{"model":${JSON.stringify(there)}${body.slice(beginning.length)}`;
  return JSON.stringify({ ...(JSON.parse(body) as object), model: there });
}
