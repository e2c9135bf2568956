import type { Config } from "../config.ts";
import type { Engine, Prompt } from "../contract/engine.ts";
import type { McpAccess } from "../contract/mcp-access.ts";
import type { Model } from "../contract/model.ts";
import { createEngine } from "../engine/create-engine.ts";
import { Upstream } from "../engine/upstream.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import type { TurnAddress } from "../protocol/ids.ts";
import { toolsetOf } from "../tools/create-toolset.ts";
import { HOSTED_TOOLS } from "../tools/hosted-tools.ts";
import type { Toolset } from "../tools/toolset.ts";
import { MAX_CONCURRENT_CALLS } from "../turn/call-answers.ts";
import { makePrompt } from "../turn/first-prompt.ts";
import { forEachAtOnce } from "../turn/for-each-at-once.ts";
import { checkCallPairs } from "../turn/history.ts";
import { withAllTools, withConfiguration } from "../turn/loaded-tools.ts";
import { checkPromptMedia } from "../turn/media.ts";
import type { BatchSink } from "../turn/output-events.ts";
import type { TurnState } from "../turn/state.ts";
import { truncateToFit } from "../turn/truncation.ts";
import { Turn } from "../turn/turn.ts";
import type { Past } from "./past.ts";

/** How a turn is put together, for both of its hosts: the Worker (foreground) and the home (runs). */

/** A turn as it was asked for: plain data, which a run keeps. Its address names it. */
export interface TurnSpec extends TurnAddress {
  /** As `acceptRequest` gives it. */
  request: CreateRequest;
  model: Model;
  tenant?: string;
  cacheSalt: string;
  /** Names the requests that a router before the model server is to keep together. */
  session?: string | undefined;
  /** Unix milliseconds. */
  createdAt: number;
}

/** What a host provides for a turn. */
export interface TurnHost {
  config: Config;
  /** How to reach the MCP servers of the request, by label. */
  access: Readonly<Record<string, McpAccess>>;
  /** What all that the turn puts out may take as JSON, in UTF-16 units. */
  room: number;
  /** Aborted when nobody wants the answer any more. */
  signal: AbortSignal;
  /** Keeps the host alive for what is still to be done when the turn has ended. */
  waitUntil: (promise: Promise<unknown>) => void;
  /** Takes the events, where anybody wants them. */
  sink?: BatchSink | undefined;
  /** The state of the turn at the end of its log, for a run whose process died: it goes on from there. */
  logged?: TurnState | undefined;
}

/**
 * The turn. Without a past, because it cannot be read, all that the turn can do is end (`abandon`).
 * Throws the 400s of a past and an input that do not fit each other, the request's tools, or the operator's rules.
 */
export function assembleTurn(spec: TurnSpec, past: Past | undefined, host: TurnHost): Turn {
  const { model, cacheSalt, createdAt } = spec;
  const { config, room, signal, waitUntil, sink, logged } = host;
  if (past) checkPromptMedia(past, spec.request, config.isMediaListed);
  const { history, replays, input } = past ?? { history: [], replays: [], input: [] };
  const request = withConfiguration(spec.request, history, input);
  const upstream = new Upstream(config, spec.session);
  return new Turn(
    {
      engine: createEngine(model.engine, config, upstream, HOSTED_TOOLS),
      request,
      address: spec,
      model,
      history,
      replays,
      input,
      hostedTools: HOSTED_TOOLS,
      tools: past && toolsOf(spec, past, host),
      cacheSalt,
      createdAt,
      signal,
      clock: Date.now,
      maxRetries: config.maxRetries,
      room,
      recoveryTimeMs: request.background ? config.recoveryTimeMs : config.foregroundRecoveryTimeMs,
      isServerGone: (until) => upstream.isGone(until),
      waitUntil,
      logged,
    },
    sink,
  );
}

/**
 * The prompt that the turn would send first, and the engine that can count it, without a turn. The tools of MCP servers
 * that nobody has listed in this conversation are listed, as the turn would. Approved calls are not made. Throws the 400s
 * of `assembleTurn`, the 400 `context_length_exceeded` where `truncation: "auto"` cannot make it fit, and the signal's
 * reason when it is aborted.
 */
export async function assemblePrompt(
  spec: TurnSpec,
  past: Past,
  host: Pick<TurnHost, "config" | "access" | "signal">,
): Promise<{ engine: Engine; prompt: Prompt }> {
  const { model } = spec;
  const { config, signal } = host;
  const request = withConfiguration(spec.request, past.history, past.input);
  checkPromptMedia(past, request, config.isMediaListed);
  const tools = toolsOf(spec, past, host);
  const firstPrompt = () =>
    makePrompt({ ...spec, ...past, request }, tools?.mayCall(0) ? tools.serverTools : undefined);
  checkCallPairs(firstPrompt().items);
  if (tools) await listTools(tools, signal);
  const engine = createEngine(model.engine, config, new Upstream(config, spec.session), HOSTED_TOOLS);
  const prompt = firstPrompt();
  return { engine, prompt: request.truncation === "auto" ? await truncateToFit(engine, prompt, signal) : prompt };
}

/** Lists the tools of all servers that have not been listed. Rejects with the signal's reason when it is aborted. */
async function listTools(tools: Toolset, signal: AbortSignal): Promise<void> {
  try {
    await forEachAtOnce([...tools.unlisted], MAX_CONCURRENT_CALLS, async (server) => {
      await tools.list(server, signal);
    });
  } finally {
    await tools.close();
  }
}

/** The tools that this server runs for the turn, where it has any. */
function toolsOf(
  { home, turn, tenant = "", request }: TurnSpec,
  { history, replays, input }: Past,
  { config, access, logged }: Pick<TurnHost, "config" | "access" | "logged">,
): Toolset | undefined {
  return toolsetOf(withAllTools(request, [...history, ...input]), access, {
    address: { home, turn },
    config,
    tenant,
    history,
    input,
    // What tools remember of this turn, too.
    replays: logged ? [...replays, ...logged.replays] : replays,
    output: logged?.output.filter((_, index) => !logged.openLists.includes(index)) ?? [],
  });
}
