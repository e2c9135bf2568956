import { blameFor } from "@responses-edge/engines/blame";
import { ChatEngine } from "@responses-edge/engines/chat/engine";
import { HarmonyEngine } from "@responses-edge/engines/harmony/engine";
import { learnModels } from "@responses-edge/engines/model-lists";
import type { Body } from "@responses-edge/engines/model-server";
import { modelOf, type RoutedModel, resolveModel } from "@responses-edge/engines/models";
import { targetOf } from "@responses-edge/engines/routes";
import { Upstream } from "@responses-edge/engines/upstream";
import { malformedAnswer } from "@responses-edge/engines/upstream-faults";
import { LongWork } from "@responses-edge/long-work";
import type { CreateRequest } from "@responses-edge/responses-api/create-request";
import { type ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import type { TreeAddress } from "@responses-edge/responses-api/ids";
import type { Engine, Model, ServerAttempt } from "@responses-edge/turn/engine";
import { type Measurements, modelServerTrace } from "@responses-edge/turn/measurements";
import type { Config } from "../config/index.ts";
import { PLUGINS } from "../tools/plugins.ts";
import { type Affinity, rootKey, type SessionOwner, sessionOf } from "./session.ts";

export { routed } from "@responses-edge/engines/routes";

/** How one request reaches its model: the model servers, the model, and the engine that speaks to it. Each is made once. */
export class ModelAccess {
  readonly upstream: Upstream;
  readonly #config: Config;
  readonly #tenant: string;
  #model: Promise<RoutedModel> | undefined;
  #engine: Engine | undefined;
  /** The same for all turns of the conversation: a route with several models has one of them for it. */
  #conversation = "";
  /** The names that have answered with a fault. */
  readonly #failed: string[] = [];

  /** `model`: the one that the request has had already, in another process perhaps. */
  constructor(config: Config, tenant: string, model?: Model) {
    this.upstream = new Upstream(config);
    this.#config = config;
    this.#tenant = tenant;
    this.#model = model && Promise.resolve({ route: undefined, ...model });
  }

  /**
   * The model that the request names; vLLM's first one where it names none. An unknown name is vLLM's to refuse. Every call is for the
   * same request. Throws ApiError 503 where there is no model, and as the upstream does where no name was sent.
   */
  resolve(name: string | null | undefined, signal: AbortSignal): Promise<Model> {
    this.#model ??= resolveModel(name, this.#conversation, this.#config, this.upstream, signal);
    return this.#model;
  }

  /** Says which conversation the request is in, before its model is asked for. */
  inTree(tree: TreeAddress): void {
    this.#conversation = rootKey(this.#tenant, "", tree);
  }

  /** Tells whether the request has other models to go to. */
  async mayReplaceModel(): Promise<boolean> {
    const { route } = (await this.#model) ?? {};
    const known = route === undefined ? undefined : this.#config.routes.get(route);
    return known !== undefined && known.fallbacks.length + known.contextFallbacks.length > 0;
  }

  /**
   * Has the request go to the next model that its route names for such a fault, before anything was shown of an answer. Undefined, and
   * without effect, where there is none.
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
   * The request in the form in which the engine of its model takes it. Throws the 400 of what no such model can do, or the
   * operator does not allow.
   */
  accept(request: CreateRequest, model: Model): CreateRequest {
    if (this.#config.hidesReasoning && request.enable_response_messages) {
      throw invalidRequest(
        "enable_response_messages",
        "Raw messages have the model's reasoning in them, which this server hides.",
        "unsupported_parameter",
      );
    }
    return this.engineOf(model).accept(request);
  }

  /**
   * A tree for a new conversation, drawn so that its turns go where this one should: to the server that the client's own words lead
   * to, or how its prompt begins, and else to one with little to do; never to one that drains. So requests that bring their history
   * along, and those that continue it here, meet at one server, and nobody has to remember which that is. `draw` gives another tree
   * with each call, of which the last counts. Rejects as `resolve` does.
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
    const session = sessionOf({ tenant, home: "", turn: "", affinity: { isRooted: false, hint, beginning } }, model);
    upstream.setOptions({ model, session });
    await learnModels(upstream.servers, model, signal);
    return upstream.keyOfServer(() => {
      const tree = drawn();
      return { made: tree, key: rootKey(tenant, model, tree) };
    });
  }

  /**
   * Draws trees whose conversations get one model of a route that has several: that which the client's own words lead to, or how its prompt
   * begins, and else the first tree.
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
      // A model with so small a share that no draw leads to it is the next turn's no more.
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

  /** The engine for a turn. Its requests are of the turn's session; `onAttempt` and `measured` see each of them. */
  engineFor(
    owner: SessionOwner,
    model: Model,
    { onAttempt, measured }: { onAttempt?: OnAttempt | undefined; measured?: Measurements | undefined },
  ): Engine {
    this.upstream.setOptions({
      session: sessionOf({ ...owner, tenant: this.#tenant }, model.upstream),
      model: model.upstream,
      onAttempt: measured ? counted(measured, onAttempt) : onAttempt,
      trace: measured?.trace?.isHandedOn ? () => modelServerTrace(measured) : undefined,
    });
    return this.engineOf(model);
  }
}

/** The trees that are drawn for a model with a small share, at most: one in a hundred is found, almost always. */
const MAX_DRAWS = 500;

/** The code of a prompt that is longer than its model's context window. */
const CONTEXT_FAULT = "context_length_exceeded";

/** Tells whether a fault is the model server's, rather than the request's. */
function isServersFault(fault: ApiError): boolean {
  return blameFor(fault) !== "request";
}

type OnAttempt = (call: ServerAttempt) => void;

/** Counts the tries at another server because one could not answer, and passes all on. */
function counted(measured: Measurements, onAttempt: OnAttempt | undefined): OnAttempt {
  return (attempt) => {
    if (attempt.attempt > 1) measured.failovers += 1;
    onAttempt?.(attempt);
  };
}

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
  { signal, onAttempt }: { signal: AbortSignal; onAttempt?: OnAttempt | undefined },
): Promise<PassedAnswer> {
  const session = sessionOf({ tenant, home: "", turn: "", affinity }, model ?? "");
  const upstream = new Upstream(config, { model, session, onAttempt });
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
