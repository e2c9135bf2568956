import { forEachAtOnce } from "@responses-edge/bounded-io/long-work";
import { type CreateRequest, conversationOf } from "@responses-edge/responses-api/create-bodies";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import { containerIdOf, responseId, type TurnAddress } from "@responses-edge/responses-api/ids";
import { type InputItem, type Item, isTextOnly } from "@responses-edge/responses-api/items/registry";
import type { CacheDiagnosis } from "@responses-edge/responses-api/response";
import { hostedKey } from "@responses-edge/responses-api/tool-names";
import type { McpAccess } from "@responses-edge/responses-api/tools";
import { openNewest, paramOf, standingItems } from "@responses-edge/turn/compacted-past";
import type { Engine, Model, Prompt, Replay, ServerAttempt } from "@responses-edge/turn/contract/engine";
import type { Measurements } from "@responses-edge/turn/contract/measurements";
import type { Programs } from "@responses-edge/turn/contract/programs";
import { withAllTools, withConfiguration } from "@responses-edge/turn/loaded-tools";
import type { TurnPast, TurnSecrets } from "@responses-edge/turn/options";
import type { BatchSink } from "@responses-edge/turn/output-events";
import { checkCallPairs, makePrompt } from "@responses-edge/turn/prompt";
import { MAX_FRUITLESS } from "@responses-edge/turn/resume";
import { programFingerprints } from "@responses-edge/turn/sealed-content/program-fingerprint";
import { openReasoning } from "@responses-edge/turn/sealed-content/sealed-reasoning";
import { compactionCodec, createSealer } from "@responses-edge/turn/sealed-content/sealer";
import type { TurnState } from "@responses-edge/turn/state";
import type { Steering } from "@responses-edge/turn/steering";
import { truncateToFit } from "@responses-edge/turn/truncation";
import { Turn } from "@responses-edge/turn/turn";
import type { Config, ToolConfig } from "../config/index.ts";
import type { AgentIdentity, AgentRuns } from "../contract/agent-runs.ts";
import type { ContainerFiles, GivenFile } from "../contract/container-files.ts";
import type { StoreSearch } from "../contract/store-search.ts";
import { JoinedSession } from "../tools/joined-session.ts";
import { PLUGINS } from "../tools/plugins.ts";
import type { Affinity } from "./affinity.ts";
import { watchOf } from "./drift-watch.ts";
import type { Sender } from "./flow.ts";
import { moderationOf } from "./guard.ts";
import { imageMaker } from "./image-maker.ts";
import { checkMedia, checkPromptMedia } from "./media-policy.ts";
import { ModelAccess } from "./model-access.ts";
import { isOperatorsModel } from "./operators-model.ts";
import { programRunner } from "./program-runner.ts";

/** Assembles turns, for both of their hosts: the Worker (foreground) and the home (runs). */

/** A turn as its request asks for it: plain data, which a run stores. Its address identifies it. */
export interface TurnSpec extends TurnAddress {
  /** As `acceptRequest` gives it. */
  request: CreateRequest;
  model: Model;
  tenant: string;
  cacheSalt: string;
  /** Identifies the other turns that share a model server's cache with this one. */
  affinity: Affinity;
  /** Undefined in runs that an earlier version has stored. */
  sender?: Sender | undefined;
  /** The files that the request gives to its container. */
  givenFiles?: readonly GivenFile[];
  /** As in `Asked`. */
  givenOutput?: { item: string; output: string };
  /** The agent whose task it is, in a response of another one. */
  agent?: AgentIdentity;
  /** Unix milliseconds. */
  createdAt: number;
}

/** The host of a turn: the Worker, or a home. */
export interface TurnHost {
  config: Config;
  /** The model access that the request has used already. A host that has not asked for the model passes none. */
  modelAccess?: ModelAccess | undefined;
  /** How to reach the MCP servers of the request, by label. */
  access: Readonly<Record<string, McpAccess>>;
  /** Searches the tenant's vector stores, where the turn may search them. */
  searchStores?: StoreSearch | undefined;
  /** Reads and stores files for the turn's container, if it may have any. */
  containerFiles?: (() => ContainerFiles) | undefined;
  /** Runs the tasks of a turn's sub-agents. */
  agents?: ((spec: TurnSpec) => AgentRuns) | undefined;
  /** The longest JSON of the turn's whole output, in UTF-16 units. */
  outputLength: number;
  /** Aborted when nobody wants the answer any more. */
  signal: AbortSignal;
  /** Keeps the host alive for work after the turn has ended. */
  waitUntil: (promise: Promise<unknown>) => void;
  /** Called with every attempt of every request to a model server for an answer. */
  onAttempt?: ((call: ServerAttempt) => void) | undefined;
  /** Takes the events, if anybody reads them. */
  sink?: BatchSink | undefined;
  /** Ends the turn when its user sends another message; undefined where it cannot be steered. */
  steering?: Steering | undefined;
  /** The state of the turn at the end of its log, for a run whose process died: it goes on from there. */
  logged?: TurnState | undefined;
  /** The request's measurements. */
  measured: Measurements;
  /** The comparison with an earlier prompt, if the request asked for it. */
  diagnosis?: Promise<CacheDiagnosis> | undefined;
}

/**
 * The turn. Without `kept`, because the history cannot be read, the turn can only end (`abandon`). Throws the 400s of a
 * history and an input that do not fit each other, of the request's tools, and of the operator's rules.
 */
export function assembleTurn(spec: TurnSpec, kept: Past | undefined, host: TurnHost): Turn {
  const { model, cacheSalt, createdAt } = spec;
  const { config, outputLength, logged, measured } = host;
  const secrets = new Secrets(spec, config);
  const { past, known, request } = kept
    ? openPast(kept, spec, secrets, config)
    : { past: NO_PAST, known: undefined, request: spec.request };
  noteTurn(measured, spec, request, config);
  const { modelAccess = new ModelAccess(config, spec.tenant) } = host;
  const { upstream } = modelAccess;
  const mayHaveTools = request.tools != null || request.multi_agent != null || !past.isTextOnly;
  const output = logged?.output ?? [];
  const moderated = config.guard && moderationOf({ ...spec, request, history: past.history, output }, config);
  const engine = modelAccess.engineFor(spec, model, host);
  return new Turn({
    asked: {
      request,
      address: spec,
      model,
      cacheSalt,
      givenOutput: spec.givenOutput,
      isTask: spec.agent !== undefined,
      createdAt,
    },
    past,
    model: {
      engine: moderated?.engine(engine) ?? engine,
      isServerGone: async (signal) => upstream.server.isGone(signal),
      leaveServer: () => upstream.leaveServer(),
      replica: () => upstream.server.config.name,
    },
    bounds: {
      maxRetries: config.maxRetries,
      maxFruitless: config.modelServers.length > 1 ? MAX_FRUITLESS.inPool : MAX_FRUITLESS.alone,
      outageMs: request.background ? config.recoveryTimeMs : config.foregroundRecoveryTimeMs,
      outputLength,
      maxRounds: config.tools.maxRounds,
      repetitionGuard: config.repetitionGuard,
    },
    tools: {
      plugins: PLUGINS,
      session: known && mayHaveTools ? toolsOf(spec, past, known, host) : undefined,
      programs: programsOf(spec, request, config.tools),
    },
    secrets,
    moderation: moderated,
    host: { ...host, clock: Date.now, onPrompt: watchOf(spec, engine, host) },
    logged,
  });
}

/**
 * Runs the programs of a request's model, if its tools have one that takes programs. Throws the 400 where the deployment
 * cannot run any.
 */
export function programsOf(
  { tenant }: Pick<TurnSpec, "tenant">,
  { tools }: Pick<CreateRequest, "tools">,
  { runsPrograms }: Pick<ToolConfig, "runsPrograms">,
): Programs | undefined {
  const index = tools?.findIndex(({ type }) => type === "programmatic_tool_calling") ?? -1;
  if (index < 0) return undefined;
  const runner = runsPrograms ? programRunner() : undefined;
  if (runner) return { step: (run, signal) => runner.step(run, tenant, signal) };
  const message = "This deployment cannot run programs: it has no tool 'programmatic_tool_calling'.";
  throw invalidRequest(`tools[${index}].type`, message, "unsupported_parameter");
}

const NO_PAST: TurnPast = { history: [], replays: [], input: [], removed: [] };

/**
 * The first prompt that the turn would send, and the engine that can count it. Makes no turn. Lists the tools of MCP servers that
 * have not been listed in this conversation, as the turn would, unless the host says otherwise; makes no approved calls. Throws the 400s of `assembleTurn`, the
 * 400 `context_length_exceeded` if even `truncation: "auto"` cannot make it fit, and the signal's reason when it is aborted.
 */
export async function assemblePrompt(
  spec: TurnSpec,
  kept: Past,
  host: Pick<TurnHost, "config" | "modelAccess" | "access" | "signal" | "onAttempt"> & {
    measured?: Measurements | undefined;
    listsTools?: false;
  },
): Promise<{ engine: Engine; prompt: Prompt }> {
  const { model } = spec;
  const { config, signal } = host;
  const { past, known, request } = openPast(kept, spec, new Secrets(spec, config), config);
  const tools = toolsOf(spec, past, known, host);
  const { modelAccess = new ModelAccess(config, spec.tenant) } = host;
  const engine = modelAccess.engineFor(spec, model, host);
  const source = { asked: { ...spec, request }, past };
  const firstPrompt = () =>
    makePrompt(source, engine.noteRole, tools && tools.maxRounds > 0 ? tools.pluginTools : undefined);
  checkCallPairs(firstPrompt().items);
  if (tools && host.listsTools !== false) await listTools(tools, signal);
  const prompt = firstPrompt();
  return { engine, prompt: request.truncation === "auto" ? await truncateToFit(engine, prompt, signal) : prompt };
}

/** Lists the tools of all servers that have not been listed. Rejects with the signal's reason when it is aborted. */
async function listTools(tools: JoinedSession, signal: AbortSignal): Promise<void> {
  try {
    await forEachAtOnce([...tools.unlisted], async (server) => {
      await server.list(signal);
    });
  } finally {
    await tools.close();
  }
}

function noteTurn(
  measured: Measurements,
  { model, ...address }: TurnSpec,
  request: CreateRequest,
  config: Config,
): void {
  const { metrics, prometheus } = config.telemetry;
  measured.turn = {
    model,
    // Only metrics have models by name.
    isOperatorsModel: Boolean(metrics ?? prometheus) && isOperatorsModel(model.upstream, config),
    responseId: responseId(address),
    conversation: conversationOf(request),
    isStored: request.store !== false,
    settings: {
      maxTokens: request.max_output_tokens ?? undefined,
      temperature: request.temperature ?? undefined,
      topP: request.top_p ?? undefined,
    },
  };
}

/** Seals and opens what clients store: compactions, and reasoning for the turn's tenant and model. */
class Secrets implements TurnSecrets {
  readonly hidesReasoning: boolean;
  readonly seal: TurnSecrets["seal"];
  readonly #keys: Config["encryptionKeys"];
  readonly #tenant: string;

  constructor({ tenant, model }: TurnSpec, { encryptionKeys, hidesReasoning }: Config) {
    const sealer = encryptionKeys.length > 0 ? createSealer(encryptionKeys, tenant, model.upstream) : undefined;
    this.hidesReasoning = hidesReasoning;
    this.seal = sealer && { sealer, engine: model.engine };
    this.#keys = encryptionKeys;
    this.#tenant = tenant;
  }

  // Made on use: few turns have a compaction.
  get compactions() {
    return compactionCodec(this.#keys, this.#tenant);
  }

  get programs() {
    return programFingerprints(this.#keys, this.#tenant);
  }
}

/**
 * Opens the sealed reasoning of a history, and its newest compaction. `known` is the history including that compaction's content;
 * `request` has the settings that items make. Throws the 400s of an unreadable compaction, and of media that vLLM may not fetch.
 */
function openPast(
  kept: Past,
  { request: asked }: TurnSpec,
  secrets: TurnSecrets,
  config: Config,
): { past: TurnPast; known: readonly Item[]; request: CreateRequest } {
  if (isTextOnly(kept.history) && isTextOnly(kept.input)) {
    return { past: { ...kept, removed: [], isTextOnly: true }, known: kept.history, request: asked };
  }
  checkPromptMedia(kept, asked, config.isMediaListed);
  const past = openReasoning(kept, secrets.seal);
  const { history } = past;
  const opened = openNewest(past, asked, secrets.compactions);
  let known: readonly Item[] = history;
  if (opened) {
    checkMedia(standingItems(opened.content, "user"), config.isMediaListed, () => paramOf(opened, asked));
    const { before, after } = opened.content;
    const at = opened.side === "history" ? opened.index : history.length;
    known = [...history.slice(0, at), ...before, ...after, ...history.slice(at)];
  }
  return { past: { ...past, opened }, known, request: withConfiguration(asked, known, past.input) };
}

/** The hosted tools of the turn, if any. `known` as `openPast` gives it. Throws the 400s of `JoinedSession.of`. */
function toolsOf(
  spec: TurnSpec,
  { replays, input, isTextOnly: isText }: TurnPast,
  known: readonly Item[],
  {
    config,
    access,
    logged,
    searchStores,
    containerFiles,
    agents,
    steering,
  }: Pick<TurnHost, "config" | "access" | "logged" | "searchStores" | "containerFiles" | "agents" | "steering">,
): JoinedSession | undefined {
  const { home, turn, tenant, request, agent, givenFiles = [] } = spec;
  const items = [...known, ...input];
  const hasOnlyText = isText === true && !logged;
  // Text loads no tools.
  const whole = hasOnlyText ? request : withAllTools(request, items);
  let concernsPlugins = request.multi_agent?.enabled === true;
  for (const { type } of input) concernsPlugins ||= type === "mcp_approval_response";
  for (const tool of whole.tools ?? []) concernsPlugins ||= hostedKey(tool) !== undefined;
  if (!concernsPlugins) return undefined;
  return JoinedSession.of({
    request: whole,
    hasOnlyText,
    config: config.tools,
    access,
    items,
    input,
    // Includes the tools' memory of this turn.
    replays: logged ? [...replays, ...logged.replays] : replays,
    output: logged?.output.filter((_, index) => !logged.openLists.includes(index)) ?? [],
    searchStores,
    images: config.tools.images && imageMaker(config),
    home,
    agent,
    agents: request.multi_agent?.enabled ? agents?.(spec) : undefined,
    show: steering && ((shown) => steering.show(shown)),
    containerFiles,
    givenFiles,
    ownContainer: containerIdOf({ home, turn }),
    tenant,
  });
}

/** Everything that a turn knows before it asks its model. */
export interface Past {
  /** Items of earlier turns, oldest first. */
  history: Item[];
  /** The raw messages behind them. */
  replays: Replay[];
  /** The turn's own input, references resolved. */
  input: Item[];
}

/** A history that was read. */
export interface ReadPast extends Past {
  /** The JSON length of everything read for it, in UTF-16 units. */
  length: number;
}

/** A source of the history of a turn: the homes of its tenant, or a transport that keeps turns. */
export interface PastSource {
  /**
   * The turn at `previous` with all earlier ones, and `input` with its references resolved. Throws the 400s of missing
   * turns and items: another tenant's, deleted and unstored ones look alike.
   */
  past(input: readonly InputItem[], previous: TurnAddress | null): Promise<ReadPast>;
}
