import { LongWork } from "@responses-edge/bounded-io/long-work";
import { blameFor } from "@responses-edge/engines/blame";
import { ChatEngine } from "@responses-edge/engines/chat/engine";
import { HarmonyEngine } from "@responses-edge/engines/harmony/engine";
import { seesImages } from "@responses-edge/engines/modalities";
import { learnModels } from "@responses-edge/engines/model-names";
import type { Body } from "@responses-edge/engines/model-server";
import { modelOf, type RoutedModel, resolveModel } from "@responses-edge/engines/models";
import type { TokenCount } from "@responses-edge/engines/passed-usage";
import { meterTokens } from "@responses-edge/engines/pool/admitted";
import { targetOf } from "@responses-edge/engines/routes";
import { Upstream } from "@responses-edge/engines/upstream";
import { malformedAnswer } from "@responses-edge/engines/upstream-faults";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { type ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import type { TreeAddress } from "@responses-edge/responses-api/ids";
import type { Engine, Model, ServerAttempt } from "@responses-edge/turn/contract/engine";
import {
  type Measurements,
  modelServerTrace,
  noteAttempt,
  noteWaited,
} from "@responses-edge/turn/contract/measurements";
import type { Config } from "../config/index.ts";
import type { Identity } from "../contract/grants.ts";
import { PLUGINS } from "../tools/plugins.ts";
import { type Affinity, type KeyedTurn, rootKey, serverKeyOf } from "./affinity.ts";
import { flowOf, priorityClass, type Sender, senderOf } from "./flow.ts";
import { withKeptThoughts } from "./kept-thoughts.ts";

export { routed } from "@responses-edge/engines/routes";

/** The model access of one request: the model servers, the model, and the engine that speaks to it. Each is made once. */
export class ModelAccess {
  readonly #config: Config;
  readonly #tenant: string;
  #upstream: Upstream | undefined;
  #model: Promise<RoutedModel> | undefined;
  #engine: Engine | undefined;
  /** The key of the conversation, by which a route with several models chooses one. All turns of the conversation have the same key. */
  #conversation = "";
  /** The model names that have failed. */
  readonly #failed: string[] = [];

  /** `model`: the one that the request has used already, perhaps in another process. */
  constructor(config: Config, tenant: string, model?: Model) {
    this.#config = config;
    this.#tenant = tenant;
    this.#model = model && Promise.resolve({ route: undefined, ...model });
  }

  /** The model servers. */
  get upstream(): Upstream {
    this.#upstream ??= new Upstream(this.#config);
    return this.#upstream;
  }

  /**
   * The model that the request names, or else vLLM's first one. vLLM refuses unknown names itself. Every call is for the same
   * request. Throws ApiError 503 if there is no model, and, for a request without a name, as the upstream does.
   */
  resolve(name: string | null | undefined, signal: AbortSignal): Promise<Model> {
    this.#model ??= resolveModel(name, this.#conversation, this.#config, this.upstream, signal);
    return this.#model;
  }

  /** Tells whether the request's model reads images. Throws as `resolve` does. */
  async seesImages(name: string | null | undefined, signal: AbortSignal): Promise<boolean> {
    const { upstream: model, engine } = await this.resolve(name, signal);
    return engine === "chat" && seesImages(model, this.#config, this.upstream, signal);
  }

  /** Sets the conversation of the request, before its model is resolved. */
  inTree(tree: TreeAddress): void {
    this.#conversation = rootKey(this.#tenant, "", tree);
  }

  /** Tells whether the request may go to another model. */
  async mayReplaceModel(): Promise<boolean> {
    const { route } = (await this.#model) ?? {};
    const known = route === undefined ? undefined : this.#config.routes.get(route);
    return known !== undefined && known.fallbacks.length + known.contextFallbacks.length > 0;
  }

  /**
   * Moves the request to the next model that its route names for this fault, if nothing of an answer was shown yet.
   * Undefined, and without effect, if there is none.
   */
  async replaceModel(fault: ApiError, signal: AbortSignal): Promise<Model | undefined> {
    const { route } = (await this.#model) ?? {};
    if (route === undefined) return undefined;
    this.#failed.push(route);
    const { fallbacks = [], contextFallbacks = [] } = this.#config.routes.get(this.#failed[0] ?? route) ?? {};
    const names = fault.code === CONTEXT_FAULT ? contextFallbacks : isServersFault(fault) ? fallbacks : [];
    const next = names.find((name) => !this.#failed.includes(name));
    if (next === undefined) return undefined;
    this.#model = modelOf(next, this.#conversation, this.#config, this.upstream, signal);
    this.#engine = undefined;
    return this.#model;
  }

  /** The engine that speaks to the request's model. */
  engineOf({ engine }: Model): Engine {
    if (!this.#engine) {
      const work = new LongWork(this.#tenant);
      const { upstream } = this;
      this.#engine =
        engine === "harmony"
          ? new HarmonyEngine(upstream, PLUGINS, this.#config.harmony, work)
          : new ChatEngine(upstream, PLUGINS, this.#config, work);
    }
    return this.#engine;
  }

  /**
   * The request in the form that its model's engine takes. Throws the 400 of features that no such model has, or that
   * the operator does not allow.
   */
  accept(request: CreateRequest, model: Model): CreateRequest {
    if (this.#config.hidesReasoning && request.enable_response_messages) {
      throw invalidRequest(
        "enable_response_messages",
        "Raw messages contain the model's reasoning, which this server hides.",
        "unsupported_parameter",
      );
    }
    return this.engineOf(model).accept(withKeptThoughts(request, model.upstream, this.#config));
  }

  /**
   * Draws a tree for a new conversation, where there are several servers or models, such that its turns go to the right
   * server: the one that the client's session id, or else the prompt's beginning, leads to; without either, one with a
   * low load; never one that drains. Requests that send their history and requests that continue it here thus reach the same server, without any stored
   * mapping. `draw` gives another tree with each call; the last one counts. Rejects as `resolve` does.
   */
  async placedTree<Tree extends TreeAddress>(
    { model: name, affinity }: { model: string | null | undefined; affinity: Affinity },
    draw: () => Tree,
    signal: AbortSignal,
  ): Promise<Tree> {
    const { hint, beginning } = affinity;
    const { routes, modelServers } = this.#config;
    const drawn = routes.size > 0 ? this.#drawFor(name, affinity, draw) : draw;
    if (modelServers.length === 1 || !affinity.isRooted) return drawn();
    const tenant = this.#tenant;
    const { upstream } = this;
    const { upstream: model } = await this.resolve(name, signal);
    const serverKey = serverKeyOf(
      { tenant, home: "", turn: "", affinity: { isRooted: false, hint, beginning } },
      model,
    );
    upstream.setOptions({ model, serverKey });
    await learnModels(upstream.servers, model, signal);
    return upstream.keyOfServer(() => {
      const tree = drawn();
      return { made: tree, key: rootKey(tenant, model, tree) };
    });
  }

  /**
   * Draws trees until one leads to the right model of a route with several: the model that the client's session id,
   * or else the prompt's beginning, leads to; without either, the first tree.
   */
  #drawFor<Tree extends TreeAddress>(
    name: string | null | undefined,
    { hint, beginning }: Affinity,
    draw: () => Tree,
  ): () => Tree {
    const route = name == null ? undefined : this.#config.routes.get(name);
    if (!route || route.targets.length === 1) return draw;
    const said = hint ?? beginning;
    let first: Tree | undefined;
    if (said === undefined) {
      first = draw();
      this.inTree(first);
    } else this.#conversation = `${this.#tenant}\n${said}`;
    const wanted = targetOf(route, this.#conversation);
    return () => {
      let tree = first ?? draw();
      first = undefined;
      // If a model's share is so small that no draw leads to it, the next turn has another model.
      for (
        let drawn = 1;
        drawn < MAX_DRAWS && targetOf(route, rootKey(this.#tenant, "", tree)) !== wanted;
        drawn += 1
      ) {
        tree = draw();
      }
      return tree;
    };
  }

  /** The engine for a turn. Its requests belong to the turn's affinity and sender; `onAttempt` and `measured` see each of them. */
  engineFor(
    owner: KeyedTurn & { request: CreateRequest; sender?: Sender | undefined },
    model: Model,
    { onAttempt, measured }: { onAttempt?: OnAttempt | undefined; measured?: Measurements | undefined },
  ): Engine {
    const tenant = this.#tenant;
    const serverKey = serverKeyOf({ ...owner, tenant }, model.upstream);
    const { sender, request } = owner;
    this.upstream.setOptions({
      serverKey,
      flow: flowOf({ tenant, sender }, priorityClass(request, this.#config), serverKey.key),
      onWaited: measured && ((ms) => noteWaited(measured, ms)),
      model: model.upstream,
      onAttempt: measured ? counted(measured, "/completions", onAttempt) : onAttempt,
      trace: measured?.trace?.isForwarded ? () => modelServerTrace(measured) : undefined,
    });
    return this.engineOf(model);
  }
}

/** Most trees that are drawn. They find a model with a share of one in a hundred almost always. */
const MAX_DRAWS = 500;

/** The code of a prompt that is longer than its model's context window. */
const CONTEXT_FAULT = "context_length_exceeded";

/** Tells whether a fault is the model server's rather than the request's. */
function isServersFault(fault: ApiError): boolean {
  return blameFor(fault) !== "request";
}

type OnAttempt = (call: ServerAttempt) => void;

/**
 * Counts attempts at requests for answers, whose path is or ends with `path`, and attempts at another server after one could not
 * answer. Other requests count a prompt's tokens, or render it. Passes every attempt on.
 */
function counted(measured: Measurements, path: string, onAttempt: OnAttempt | undefined): OnAttempt {
  return (attempt) => {
    if (attempt.attempt > 1) measured.failovers += 1;
    if (attempt.path.endsWith(path)) noteAttempt(measured, attempt);
    onAttempt?.(attempt);
  };
}

/** A client's request that goes to a model server unchanged, as its answer comes back. */
export interface PassedRequest {
  /** Below `/v1`, or from the server's root when it begins with `//`. */
  path: string;
  body: Body;
  /** The content type of a body other than JSON. */
  contentType?: string | undefined;
  /** vLLM's name of the model; undefined for the server's default. */
  model: string | undefined;
  tenant: string;
  affinity: Affinity;
  /** True if the answer is a stream, whose headers come at once. The headers of other answers come when the answer is complete. */
  isStream: boolean;
}

interface PassingCaller {
  identity: Identity;
  signal: AbortSignal;
  onAttempt?: OnAttempt | undefined;
  observation?: { measured: Measurements } | undefined;
}

export interface PassedAnswer {
  type: string;
  body: ReadableStream<Uint8Array> | null;
  /** The name of the server that answers. */
  server: string;
  /** Counts the tokens of the answer, once they are known. */
  spent: (tokens: TokenCount) => void;
  /** Resolves when the bytes have ended or failed. */
  ended: Promise<void>;
}

/**
 * Asks a model server as a turn would: the one of the request's affinity, or another one if it cannot answer. Throws
 * ApiError as `Upstream.request` does; errors about the request keep vLLM's own text.
 */
export async function passOn(
  { path, body, contentType, model, tenant, affinity, isStream }: PassedRequest,
  config: Config,
  { identity, signal, onAttempt, observation }: PassingCaller,
): Promise<PassedAnswer> {
  const serverKey = serverKeyOf({ tenant, home: "", turn: "", affinity }, model ?? "");
  const sender = senderOf(identity);
  const flow = flowOf({ tenant, sender }, config.sendsBatches ? "batch" : "interactive", serverKey.key);
  const measured = observation?.measured;
  const onWaited = measured && ((ms: number) => noteWaited(measured, ms));
  const onEach = measured ? counted(measured, path, onAttempt) : onAttempt;
  const upstream = new Upstream(config, { model, serverKey, flow, onAttempt: onEach, onWaited });
  const withinMs = isStream ? undefined : config.firstByteTimeoutMs;
  const response = await upstream.request(path, signal, body, { withinMs, contentType, isPassedOn: true });
  const { readable, ended } = upstream.bytes(response);
  const type = response.headers.get("content-type") ?? "application/octet-stream";
  if (type.startsWith("text/html")) {
    // An HTML page of a proxy. No endpoint answers with one.
    await readable?.cancel();
    throw malformedAnswer();
  }
  const meter = upstream.meterOf(response);
  const spent = ({ input, cached, output }: TokenCount) => {
    if (meter) meterTokens(meter, Math.max(0, input - cached) + output);
  };
  return { type, body: readable, server: upstream.server.config.name, spent, ended };
}
