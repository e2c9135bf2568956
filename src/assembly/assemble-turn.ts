import { createHmac } from "node:crypto";
import { type CreateRequest, conversationOf } from "@responses-edge/responses-api/create-request";
import { responseId, type TurnAddress } from "@responses-edge/responses-api/ids";
import { type InputItem, type Item, isTextOnly } from "@responses-edge/responses-api/items/registry";
import { hostedKey, type McpAccess } from "@responses-edge/responses-api/tools";
import { forEachAtOnce, MAX_CONCURRENT_CALLS } from "@responses-edge/turn/call-answers";
import { openNewest, paramOf, standingItems } from "@responses-edge/turn/compacted-past";
import type { Engine, Model, Prompt, Replay, ServerAttempt } from "@responses-edge/turn/engine";
import { withAllTools, withConfiguration } from "@responses-edge/turn/loaded-tools";
import type { Measurements } from "@responses-edge/turn/measurements";
import type { TurnPast, TurnSecrets } from "@responses-edge/turn/options";
import type { BatchSink } from "@responses-edge/turn/output-events";
import { checkCallPairs, makePrompt } from "@responses-edge/turn/prompt";
import { MAX_FRUITLESS } from "@responses-edge/turn/resume";
import { openReasoning } from "@responses-edge/turn/sealed-reasoning";
import { compactionCodec, createSealer } from "@responses-edge/turn/sealer";
import type { TurnState } from "@responses-edge/turn/state";
import type { Steering } from "@responses-edge/turn/steering";
import { truncateToFit } from "@responses-edge/turn/truncation";
import { Turn } from "@responses-edge/turn/turn";
import type { Config } from "../config/index.ts";
import type { ContainerFiles, GivenFile } from "../contract/container-files.ts";
import type { StoreSearch } from "../contract/store-search.ts";
import { JoinedSession } from "../tools/joined-session.ts";
import { PLUGINS } from "../tools/plugins.ts";
import { moderationOf } from "./guard.ts";
import { imageMaker } from "./image-maker.ts";
import { checkMedia, checkPromptMedia } from "./media-policy.ts";
import { ModelAccess } from "./model-access.ts";
import { isOperatorsModel } from "./operators-model.ts";
import type { Affinity } from "./session.ts";

/** How a turn is put together, for both of its hosts: the Worker (foreground) and the home (runs). */

/** A turn as it was asked for: plain data, which a run keeps. Its address names it. */
export interface TurnSpec extends TurnAddress {
  /** As `acceptRequest` gives it. */
  request: CreateRequest;
  model: Model;
  tenant?: string;
  cacheSalt: string;
  /** The other turns that it shares a model server's cache with. */
  affinity?: Affinity | undefined;
  /** The files that the request gives to its container. */
  givenFiles?: readonly GivenFile[];
  /** Unix milliseconds. */
  createdAt: number;
}

/** The host of a turn: the Worker, or a home. */
export interface TurnHost {
  config: Config;
  /** How its request has reached its model. A host that has not asked for the model makes none. */
  modelAccess?: ModelAccess | undefined;
  /** How to reach the MCP servers of the request, by label. */
  access: Readonly<Record<string, McpAccess>>;
  /** Searches the tenant's vector stores, where the turn may search them. */
  searchStores?: StoreSearch | undefined;
  /** Reads and keeps files for the turn's container, where it may have any. */
  containerFiles?: (() => ContainerFiles) | undefined;
  /** The most that all output of the turn may take as JSON, in UTF-16 units. */
  outputLength: number;
  /** Aborted when nobody wants the answer any more. */
  signal: AbortSignal;
  /** Keeps the host alive for what is still to be done when the turn has ended. */
  waitUntil: (promise: Promise<unknown>) => void;
  /** Called with every try of every request to a model server for an answer of the model's. */
  onAttempt?: ((call: ServerAttempt) => void) | undefined;
  /** Takes the events, where anybody wants them. */
  sink?: BatchSink | undefined;
  /** Ends the turn for what its user says meanwhile, where it may be steered. */
  steering?: Steering | undefined;
  /** The state of the turn at the end of its log, for a run whose process died: it goes on from there. */
  logged?: TurnState | undefined;
  /** The request's measurements, if somebody wants them. */
  measured?: Measurements | undefined;
}

/**
 * The turn. Without a past, because it cannot be read, all that the turn can do is end (`abandon`).
 * Throws the 400s of a past and an input that do not fit each other, the request's tools, or the operator's rules.
 */
export function assembleTurn(spec: TurnSpec, kept: Past | undefined, host: TurnHost): Turn {
  const { model, cacheSalt, createdAt } = spec;
  const { config, outputLength, logged, measured } = host;
  const secrets = secretsOf(spec, config);
  const { past, known, request } = kept
    ? openPast(kept, spec, secrets, config)
    : { past: NO_PAST, known: undefined, request: spec.request };
  if (measured) noteTurn(measured, spec, request, config);
  const { modelAccess = new ModelAccess(config, spec.tenant ?? "") } = host;
  const { upstream } = modelAccess;
  const mayHaveTools = request.tools != null || !past.isTextOnly;
  const output = logged?.output ?? [];
  const moderated = moderationOf({ request, tenant: spec.tenant ?? "", input: past.input, output }, config);
  const engine = modelAccess.engineFor(spec, model, host);
  return new Turn({
    asked: { request, address: spec, model, cacheSalt, createdAt },
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
    },
    tools: { plugins: PLUGINS, session: known && mayHaveTools ? toolsOf(spec, past, known, host) : undefined },
    secrets,
    moderation: moderated,
    host: { ...host, clock: Date.now },
    logged,
  });
}

const NO_PAST: TurnPast = { history: [], replays: [], input: [], removed: [] };

/**
 * The prompt that the turn would send first, and the engine that can count it, without a turn. The tools of MCP servers
 * that nobody has listed in this conversation are listed, as the turn would. Approved calls are not made. Throws the 400s
 * of `assembleTurn`, the 400 `context_length_exceeded` where `truncation: "auto"` cannot make it fit, and the signal's
 * reason when it is aborted.
 */
export async function assemblePrompt(
  spec: TurnSpec,
  kept: Past,
  host: Pick<TurnHost, "config" | "modelAccess" | "access" | "signal" | "onAttempt">,
): Promise<{ engine: Engine; prompt: Prompt }> {
  const { model } = spec;
  const { config, signal } = host;
  const { past, known, request } = openPast(kept, spec, secretsOf(spec, config), config);
  const tools = toolsOf(spec, past, known, host);
  const { modelAccess = new ModelAccess(config, spec.tenant ?? "") } = host;
  const engine = modelAccess.engineFor(spec, model, host);
  const source = { asked: { ...spec, request }, past };
  const firstPrompt = () => makePrompt(source, engine.noteRole, tools?.mayCall(0) ? tools.pluginTools : undefined);
  checkCallPairs(firstPrompt().items);
  if (tools) await listTools(tools, signal);
  const prompt = firstPrompt();
  return { engine, prompt: request.truncation === "auto" ? await truncateToFit(engine, prompt, signal) : prompt };
}

/** Lists the tools of all servers that have not been listed. Rejects with the signal's reason when it is aborted. */
async function listTools(tools: JoinedSession, signal: AbortSignal): Promise<void> {
  try {
    await forEachAtOnce([...tools.unlisted], MAX_CONCURRENT_CALLS, async (server) => {
      await tools.list(server, signal);
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
  measured.turn = {
    model,
    isOperatorsModel: isOperatorsModel(model.upstream, config),
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

/** Seals and opens what clients keep: compactions, and reasoning for the turn's tenant and model. */
function secretsOf({ tenant, model }: TurnSpec, config: Config): TurnSecrets {
  const { encryptionKeys, hidesReasoning } = config;
  // Runs of earlier versions had no tenant, and nothing sealed.
  const isSealed = tenant !== undefined && encryptionKeys.length > 0;
  const sealer = isSealed ? createSealer(encryptionKeys, tenant, model.upstream) : undefined;
  return {
    hidesReasoning,
    seal: sealer && { sealer, engine: model.engine },
    // Few turns have a compaction.
    get compactions() {
      return compactionCodec(encryptionKeys, tenant ?? "");
    },
  };
}

/**
 * Opens the reasoning of a past, and its newest compaction. `known` is the history in which the content of that compaction stands as well,
 * `request` has the settings that items make. Throws the 400s of a compaction that cannot be read, and of media that vLLM may not fetch.
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

/**
 * The tools that this server runs for the turn, if any. `known` as `openPast` gives it.
 * Throws the 400s of `JoinedSession.of`.
 */
function toolsOf(
  { home, turn, tenant = "", request, givenFiles = [] }: TurnSpec,
  { replays, input }: TurnPast,
  known: readonly Item[],
  {
    config,
    access,
    logged,
    searchStores,
    containerFiles,
  }: Pick<TurnHost, "config" | "access" | "logged" | "searchStores" | "containerFiles">,
): JoinedSession | undefined {
  const items = [...known, ...input];
  const whole = withAllTools(request, items);
  let concernsPlugins = false;
  for (const { type } of input) concernsPlugins ||= type === "mcp_approval_response";
  for (const tool of whole.tools ?? []) concernsPlugins ||= hostedKey(tool) !== undefined;
  if (!concernsPlugins) return undefined;
  return JoinedSession.of({
    request: whole,
    config: config.tools,
    access,
    items,
    input,
    // With the tools' memory of this turn.
    replays: logged ? [...replays, ...logged.replays] : replays,
    output: logged?.output.filter((_, index) => !logged.openLists.includes(index)) ?? [],
    searchStores,
    images: imageMaker(config),
    containerFiles,
    givenFiles,
    ownContainer: `cntr_${home}${turn}`,
    // With a key nobody else can tell whose container it is, or name it.
    sessionOf: (container) =>
      createHmac("sha256", config.tools.apiKey ?? "")
        .update(`${tenant}\n${container}`)
        .digest("hex")
        .slice(0, 32),
  });
}

/** All that a turn knows before its model speaks. */
export interface Past {
  /** Items of earlier turns, oldest first. */
  history: Item[];
  /** The raw messages behind them. */
  replays: Replay[];
  /** The turn's own input, references resolved. */
  input: Item[];
}

/** A past that was read. */
export interface ReadPast extends Past {
  /** The length of all that was read for it, as JSON, in UTF-16 units. */
  length: number;
}

/** Where the past of a turn can be read: the homes of its tenant, or whoever else keeps turns. */
export interface PastSource {
  /**
   * The turn at `previous` with all before it, and `input` with what it refers to. Throws the 400s of what is not
   * there: another tenant's, deleted and never stored ones look alike.
   */
  past(input: readonly InputItem[], previous: TurnAddress | null): Promise<ReadPast>;
}
