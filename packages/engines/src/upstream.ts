import type { HttpAnswer } from "@responses-edge/outgoing-fetch/socket";
import { ApiError } from "@responses-edge/responses-api/errors";
import { pause } from "@responses-edge/turn/contract/pause";
import { type BodyFor, type Sending, sendTo } from "./attempts.ts";
import { BLAMES, type Blame, blameFor, isPage, unknownModel } from "./blame.ts";
import type { Dialect } from "./dialects/dialect.ts";
import { hashOf } from "./hash.ts";
import { assumedDialect, dialectOf, learnDialect } from "./model-lists.ts";
import { learnModels, serves } from "./model-names.ts";
import { answeredStatus, ModelServer, type RequestOptions } from "./model-server.ts";
import type { Admitted, Meter } from "./pool/admission.ts";
import { admissionOf, measured, meterText } from "./pool/admitted.ts";
import { reportOf } from "./pool/board-view.ts";
import { chooseServer, drawFor, inGoodHealth } from "./pool/choice.ts";
import { exchangeIfDue } from "./pool/exchange.ts";
import type { Leave } from "./pool/in-flight.ts";
import {
  candidateOf,
  loadOf,
  MAX_BUSY_MS,
  noteFailure,
  noteRequest,
  noteSuccess,
  retryBudget,
  takeRetry,
} from "./pool/server-load.ts";
import { MAX_TRIES, triesAfter, verdict } from "./pool/tries.ts";
import { logState, STATUSES } from "./server-status.ts";
import type { UpstreamConfig } from "./settings.ts";
import { mayServeTenants } from "./tenant-separation.ts";
import { malformedAnswer, parsedAnswer, tenantsNotSeparated } from "./upstream-faults.ts";
import type { UpstreamOptions } from "./upstream-options.ts";

export type { BodyFor } from "./attempts.ts";
export type { ServerKey, UpstreamOptions } from "./upstream-options.ts";

/**
 * The model servers as an engine sees them: as one that answers. One of them is chosen for each turn, and kept for all
 * of its rounds. A request that fails before any output is repeated at another one.
 */

/** The longest wait before another server is asked, which doubles each time. In milliseconds. */
const BACK_OFF_MS = 25;

/** How long an overloaded server that names no time is spared. In milliseconds. */
const BUSY_MS = 1_000;

/** The server of each answer, and the function that ends its count. */
const answers = new WeakMap<HttpAnswer, Answer>();

interface Asking extends Omit<Sending, "needs"> {
  /** Another server may get the request. */
  mayMove: boolean;
  /** Undefined if it is not for an answer: then it does not wait for the server. */
  admitted: Admitted | undefined;
}

interface Answer {
  server: ModelServer;
  leave: Leave;
  /** Undefined if nobody counts the tokens of the answer. */
  meter?: Meter | undefined;
}

export class Upstream {
  /** The servers of the deployment. */
  readonly servers: readonly ModelServer[];
  readonly #config: UpstreamConfig;
  readonly #options: UpstreamOptions;
  /** Set if there is only one server: nothing is chosen, counted or tried elsewhere. */
  readonly #only: ModelServer | undefined;
  /** The turn's server, once it was needed. */
  #chosen: ModelServer | undefined;
  /** Servers that have failed in this turn, the latest last. */
  #failed: readonly ModelServer[] = [];
  /** The requirements of the turn on its server. */
  #needs: ((dialect: Dialect) => boolean) | undefined;

  constructor(config: UpstreamConfig, options: UpstreamOptions = {}) {
    this.#config = config;
    this.#options = { ...options };
    const servers: ModelServer[] = [];
    for (const server of config.modelServers) servers.push(new ModelServer(server, config, this.#options));
    this.servers = servers;
    const [first] = servers;
    const isLimited =
      config.boardMs > 0 || first?.config.maxInFlight !== undefined || first?.config.models !== undefined;
    this.#only = this.servers.length === 1 && !isLimited ? first : undefined;
  }

  /** Sets options for all further requests, including the choice of the server. */
  setOptions(options: UpstreamOptions): void {
    // Another model has other servers, and other requirements.
    if (options.model !== this.#options.model) {
      this.#failed = [];
      this.#needs = undefined;
    }
    Object.assign(this.#options, options);
    this.#chosen = undefined;
  }

  /** The operator's context window of a model, in tokens; undefined if the server's own counts. */
  windowOf(model: string): number | undefined {
    const { contextWindows } = this.#config;
    return Object.hasOwn(contextWindows, model) ? contextWindows[model] : undefined;
  }

  /** The server of the turn's requests, which is chosen at the first use. */
  get server(): ModelServer {
    if (this.#only) return this.#only;
    this.#chosen ??= this.#choose();
    return this.#chosen;
  }

  /**
   * The kind of the turn's server, after asking it if unknown. If it does not show its kind, another server is asked.
   * Rejects as the last one does, and with the reason of an aborted `signal`.
   */
  async learnDialect(signal: AbortSignal): Promise<Dialect> {
    const { connectTimeoutMs, failoverMs } = this.#config;
    for (let attempt = 1; ; attempt += 1) {
      const { server } = this;
      const mayMove = attempt < MAX_TRIES && this.#others(server).length > 0;
      try {
        return await learnDialect(server, signal, mayMove ? Math.min(failoverMs, connectTimeoutMs) : connectTimeoutMs);
      } catch (fault) {
        if (!mayMove || !(fault instanceof ApiError) || signal.aborted) throw fault;
        this.#learn(fault, blameFor(fault), server);
        this.#giveUp(server);
      }
    }
  }

  /**
   * Sends all further requests only to suitable servers. False, and without effect, if none of the model's servers is
   * suitable.
   */
  require(suits: (dialect: Dialect) => boolean): boolean {
    const able = this.#only ? [this.#only] : this.#able();
    if (!able.some((server) => suits(assumedDialect(server)))) return false;
    this.#needs = suits;
    if (this.#chosen && !suits(assumedDialect(this.#chosen))) this.#chosen = undefined;
    return true;
  }

  /**
   * Sends a request and waits for its headers. `path` is below `/v1`, or from the server's root if it begins with `//`.
   * If a server cannot answer, another one is asked. Throws as `ModelServer.request` does, the 400 of a model that no
   * server may be asked for, and the 503 of a prompt for which no server keeps tenants apart (`UNSALTED_SERVERS`).
   */
  async request(path: string, signal: AbortSignal, body?: BodyFor, options?: RequestOptions): Promise<HttpAnswer> {
    const only = this.#only;
    if (!only) return this.#requestOfAny(path, signal, body, options);
    return sendTo(only, { path, signal, body, attempt: 1, options, needs: this.#needs }, this.#config, this.#options);
  }

  /** The JSON answer of a request. Throws as `request` and `text` do, and ApiError 502 when the answer is not JSON. */
  async json(path: string, signal: AbortSignal, body?: BodyFor): Promise<unknown> {
    const response = await this.request(path, signal, body);
    return parsedAnswer(await this.text(response, signal, this.#config.connectTimeoutMs));
  }

  /** A whole body: `ModelServer.text`. */
  async text(response: HttpAnswer, signal: AbortSignal, timeoutMs?: number): Promise<string> {
    if (this.#only) return this.#only.text(response, signal, timeoutMs);
    const { server, leave, meter } = this.#answerOf(response);
    const text = await server.text(response, signal, timeoutMs).finally(leave);
    if (meter) meterText(meter, text);
    return text;
  }

  /** The reads of a streamed body: `ModelServer.reads`. */
  reads(response: HttpAnswer, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    if (this.#only) return this.#only.reads(response, signal);
    const { server, leave } = this.#answerOf(response);
    return server.reads(response, signal, leave);
  }

  /**
   * The bytes of a body, unread, and a promise that resolves when they have ended, which never rejects. Aborting the
   * request's signal, or cancelling the stream, closes the request.
   */
  bytes(response: HttpAnswer): { readable: ReadableStream<Uint8Array> | null; ended: Promise<void> } {
    const { server, leave } = this.#answerOf(response);
    if (!response.body) return { readable: null, ended: Promise.resolve(leave()) };
    const { readable, writable } = new IdentityTransformStream();
    const ended = response.body.pipeTo(writable).catch(() => server.close(response));
    return { readable, ended: ended.finally(leave) };
  }

  /** Sends the next requests to another server, if there is one, because the turn's server has failed. */
  leaveServer(): void {
    if (this.#only || !this.#chosen) return;
    this.#noteFailure(this.#chosen);
    this.#giveUp(this.#chosen);
  }

  async #requestOfAny(path: string, signal: AbortSignal, body?: BodyFor, options?: RequestOptions) {
    const { model } = this.#options;
    if (model !== undefined) await learnModels(this.servers, model, signal);
    noteRequest(retryBudget, Date.now());
    let worst: ApiError | undefined;
    for (let attempt = 1; ; attempt += 1) {
      const isAnswer = options?.isTokenStream !== undefined || options?.isPassedOn === true;
      const admitted = isAnswer ? await this.#admit(signal) : undefined;
      const { server } = this;
      const mayMove = attempt < MAX_TRIES && this.#others(server).length > 0;
      try {
        return await this.#ask(server, { path, signal, body, attempt, options, mayMove, admitted });
      } catch (error) {
        const blame = error instanceof ApiError && !signal.aborted ? blameFor(error) : "request";
        if (blame === "request") throw error;
        const fault = error as ApiError;
        worst = worst && BLAMES.indexOf(blameFor(worst)) >= BLAMES.indexOf(blame) ? worst : fault;
        const isWorthIt = mayMove && attempt < triesAfter(fault, blame, this.servers, model);
        this.#learn(fault, blame, server);
        this.#giveUp(server);
        const mayGoOn = isWorthIt && this.#others(server).length > 0;
        // It waits for the next free position of the server that has refused it.
        const mayWait = isAnswer && blame === "admission" && attempt < MAX_TRIES && this.#mustWait(server);
        if (!(mayGoOn || mayWait) || !takeRetry(retryBudget, Date.now())) throw verdict(worst, this.servers, model);
        await pause(Math.random() * BACK_OFF_MS * 2 ** (attempt - 1), signal);
        signal.throwIfAborted();
      }
    }
  }

  async #ask(server: ModelServer, { mayMove, options, admitted, ...asked }: Asking): Promise<HttpAnswer> {
    const full = options?.withinMs ?? this.#config.connectTimeoutMs;
    const isSoon = mayMove && options?.withinMs === undefined && !options?.isWhole;
    const withinMs = isSoon ? Math.min(full, this.#config.failoverMs) : full;
    const load = loadOf(server.config);
    const { leave, meter } = admitted ?? load.admission.enter(Date.now());
    try {
      if (meter) meter.perEvent = options?.interval ?? 1;
      const body = meter && asked.body !== undefined ? measured(asked.body, meter) : asked.body;
      const sending = { ...asked, body, options: { ...options, withinMs }, needs: this.#needs };
      const response = await sendTo(server, sending, this.#config, this.#options);
      if (isPage(response)) {
        server.close(response);
        throw malformedAnswer();
      }
      noteSuccess(load.record);
      if (STATUSES.get(server.baseUrl)?.logged === "ejected") logState(server, undefined);
      answers.set(response, { server, leave, meter });
      return response;
    } catch (error) {
      leave();
      throw error;
    }
  }

  /** The tokens of an answer, if somebody counts them. */
  meterOf(response: HttpAnswer): Meter | undefined {
    return answers.get(response)?.meter;
  }

  /**
   * Admits a request to the turn's server, or to another one of the model that takes requests if this one is saturated; otherwise
   * waits for the first of them. Throws as `Admission.wait` does.
   */
  async #admit(signal: AbortSignal): Promise<Admitted> {
    const { flow, onWaited, serverKey } = this.#options;
    const { server } = this;
    const begin = Date.now();
    const admission = admissionOf(server);
    if (!flow) return admission.enter(begin);
    const entered = admission.isOpen(begin) ? admission.enter(begin, flow) : undefined;
    if (server.config.maxInFlight !== undefined) exchangeIfDue(begin, !entered);
    if (entered) return entered;
    const others = this.#others(server);
    const open = others.filter((other) => admissionOf(other).isOpen(begin));
    if (open.length > 0) {
      this.#chosen = this.#choose(open);
      return admissionOf(this.#chosen).enter(begin, flow);
    }
    const { firstByteTimeoutMs: maxWaitMs, maxWaiting } = this.#config;
    const admitted = await admission.wait(flow, {
      ...{ signal, maxWaitMs, maxWaiting, others: others.map(admissionOf) },
      mayMove: serverKey?.key === undefined || serverKey.isFresh === true,
      onLook: () => exchangeIfDue(Date.now(), true),
    });
    onWaited?.(Date.now() - begin);
    if (admitted.admission !== admission) {
      this.#chosen = others.find((other) => admissionOf(other) === admitted.admission);
    }
    return admitted;
  }

  /** Tells whether a request would have to wait for a server, for one that is in progress there. */
  #mustWait(server: ModelServer): boolean {
    const { flow } = this.#options;
    return flow !== undefined && loadOf(server.config).inFlight.count > 0 && !admissionOf(server).isOpen(Date.now());
  }

  #choose(untried = this.#untried()): ModelServer {
    const { serverKey } = this.#options;
    const chosen = chooseServer(this.#candidates(untried), {
      key: serverKey?.key === undefined ? undefined : hashOf(serverKey.key),
      // A request that has failed elsewhere is new to a server that drains.
      keepsDraining: serverKey?.isRoot === true && this.#failed.length === 0,
      loadFactor: this.#config.loadFactor,
      random: Math.random,
    });
    if (!chosen) throw unknownModel(this.#options.model);
    return chosen.server;
  }

  #candidates(servers: readonly ModelServer[]) {
    const now = Date.now();
    const { boardMs } = this.#config;
    const candidates = servers.map((server) => ({ ...candidateOf(server.config, now), server }));
    if (boardMs === 0) return candidates;
    const reports = servers.map(({ config }) => reportOf(config.name, now, boardMs));
    // Loads are comparable only if all are known.
    const areLoadsKnown = reports.every((report) => report?.load !== undefined);
    return candidates.map((candidate, index) => ({
      ...candidate,
      isEjected: candidate.isEjected || reports[index]?.isDown === true,
      inFlight: candidate.inFlight + (areLoadsKnown ? (reports[index]?.load ?? 0) : 0),
    }));
  }

  /** The servers that have not failed in this turn. If all have, only the last one is avoided. */
  #untried(): readonly ModelServer[] {
    const able = this.#able();
    const untried = able.filter((server) => !this.#failed.includes(server));
    if (untried.length > 0) return untried;
    this.#failed = this.#failed.slice(-1);
    const others = able.filter((server) => !this.#failed.includes(server));
    return others.length > 0 ? others : able;
  }

  /**
   * The servers that may be asked. Throws the 503 if none of the model's servers keeps tenants apart, and they must.
   */
  #able(): readonly ModelServer[] {
    const having = this.#having();
    const able = having.filter((server) => mayServeTenants(server, this.#config.unsaltedServers));
    if (having.length > 0 && able.length === 0) throw tenantsNotSeparated();
    const suited = able.filter((server) => this.#needs?.(assumedDialect(server)) ?? true);
    return suited.length > 0 ? suited : able;
  }

  /** The servers that have the model, or, if none is known to, those that may have it. */
  #having(): readonly ModelServer[] {
    const { model } = this.#options;
    if (model === undefined) return this.servers;
    const having = this.servers.filter((server) => serves(server, model));
    if (having.length > 0) return having;
    const silent = this.servers.filter((server) => serves(server, model) === undefined);
    if (silent.length > 0) return silent;
    return this.servers.filter((server) => !server.config.models && !dialectOf(server)?.answersAnyModel);
  }

  /** The alternatives to a server. */
  #others(server: ModelServer): readonly ModelServer[] {
    return inGoodHealth(this.#candidates(this.#able()))
      .filter(({ isBusy, server: other }) => !isBusy && other !== server && !this.#failed.includes(other))
      .map(({ server: other }) => other);
  }

  /** Remembers what a fault says about its server. */
  #learn(fault: ApiError, blame: Blame, server: ModelServer): void {
    // Each of the next requests would wait as long.
    if (fault.code === "upstream_timeout" && answeredStatus(fault) === undefined)
      loadOf(server.config).busyUntil = Date.now() + MAX_BUSY_MS;
    if (blame === "server") this.#noteFailure(server);
    else if (blame === "admission") {
      const seconds = Number(fault.headers["retry-after"] ?? Number.NaN);
      const ms = seconds >= 0 ? Math.min(MAX_BUSY_MS, seconds * 1000) : BUSY_MS;
      const load = loadOf(server.config);
      load.busyUntil = Date.now() + ms;
      if (load.inFlight.count > 0) load.admission.noteFull(Date.now());
    }
  }

  #noteFailure(server: ModelServer): void {
    const records = this.servers.map(({ config }) => loadOf(config).record);
    if (noteFailure(loadOf(server.config).record, records, Date.now())) logState(server, "ejected");
  }

  #giveUp(server: ModelServer): void {
    this.#failed = [...this.#failed.filter((other) => other !== server), server];
    this.#chosen = undefined;
  }

  /** Draws random keys with `make` until one leads to the turn's server, as long as all servers are healthy. */
  keyOfServer<Made>(make: () => { made: Made; key: string }): Made {
    const { server } = this;
    const candidates = this.#candidates(this.#able());
    return drawFor(candidates, (candidate) => candidate.server === server, make);
  }

  #answerOf(response: HttpAnswer): Answer {
    return answers.get(response) ?? { server: this.server, leave: () => {} };
  }
}
