import { randomUUID } from "node:crypto";
import { unlessAborted } from "@responses-edge/outgoing-fetch/guarded";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { ApiError } from "@responses-edge/responses-api/errors";
import { BYTES_PER_TOKEN, estimateFrame, estimateTokens } from "@responses-edge/responses-api/estimate";
import { namedTurnAddress, responseId, type TurnAddress, treeOf } from "@responses-edge/responses-api/ids";
import type { Item, OutputItem } from "@responses-edge/responses-api/items/registry";
import { echoTool, type McpAccess, withheldLabels } from "@responses-edge/responses-api/tools";
import { pause } from "@responses-edge/turn/contract/pause";
import { withItemIds } from "@responses-edge/turn/prompt";
import { costOf, NOTHING_STORED } from "@responses-edge/usage-limits";
import type { TurnSpec } from "../../assembly/assemble-turn.ts";
import type { Config } from "../../config/index.ts";
import type { AgentResult, AgentRuns, AgentTask } from "../../contract/agent-runs.ts";
import type { Env } from "../../env.ts";
import { endRun, type RunReservation, reserveRun } from "../limits/run-quota.ts";
import { unwrap } from "../objects/rpc.ts";
import type { HomeClient } from "./home-client.ts";
import type { RunSpec } from "./run-store.ts";

/**
 * The tasks of a response's sub-agents as runs: background responses in its home and tree, begun with the rights and limits
 * of its caller. They survive what a run survives, and the turn that has spawned them finds them again by their names.
 */

/** The response whose agents these are, and what of its caller a run keeps. */
export interface AgentOwner extends Pick<RunSpec, "policy" | "keyId" | "owner"> {
  spec: TurnSpec;
  /** The turn that the response continues, and the response's own input. */
  parent: string | null;
  input: readonly Item[];
  access: Readonly<Record<string, McpAccess>>;
  /** The limits of the caller, if it has any. */
  limits: Pick<RunReservation, "limits" | "endUser"> | undefined;
}

interface AgentHost {
  config: Config;
  homes: Pick<HomeClient, "home" | "ask">;
  quotas: Env["QUOTAS"];
  waitUntil: (promise: Promise<unknown>) => void;
  /** Called before the first run begins. */
  prepare?: (() => Promise<void>) | undefined;
}

/** Millionths of a dollar are counted for a model without a price, so that a budget that is used up refuses it, too. */
const LEAST_COST = 0.001;

/** The pause before a home is asked again whose process has ended: the first, which doubles, and the longest. Milliseconds. */
const RETRY_MS = 100;
const MAX_RETRY_MS = 5_000;

export function agentRuns(owner: AgentOwner, host: AgentHost): AgentRuns {
  const { spec } = owner;
  const { homes } = host;
  const addressOf = (key: string): TurnAddress =>
    namedTurnAddress({ series: `agent\n${spec.home}\n${key}`, no: 0 }, treeOf(spec));
  return {
    turnOf: (key) => addressOf(key).turn,

    async begin(task) {
      const address = addressOf(task.key);
      if (await homes.ask(address.home, null, (home) => home.retrieve(address.turn))) return;
      await host.prepare?.();
      await start(runOf(owner, task, address), owner, host);
    },

    async ended(turn, signal) {
      for (let wait = RETRY_MS; ; wait = Math.min(2 * wait, MAX_RETRY_MS)) {
        try {
          const finished = homes.ask(spec.home, null, (home) => home.finished(turn));
          return resultOf(await unlessAborted(finished, signal));
        } catch (error) {
          signal.throwIfAborted();
          if (error instanceof ApiError) throw error;
          // The home's process has ended, or handed the home over.
          await pause(wait, signal);
        }
      }
    },

    async interrupt(turn) {
      await homes.ask(spec.home, null, (home) => home.cancel(turn));
    },
  };
}

/** The run of a task. It has the settings of the response, but for what concerns only its own answer. */
function runOf(
  { spec, parent, ...owner }: AgentOwner,
  { after, agent, input }: AgentTask,
  address: TurnAddress,
): RunSpec {
  const { tools } = spec.request;
  const previous = after === "context" ? parent : after;
  const items = after === "context" ? [...owner.input, ...input] : input;
  const own = items.map((item): Item => ({ ...item, id: undefined }));
  // A task ends with its calls: their outputs must come before it goes on.
  const offered = tools?.map((tool) => {
    const shown = echoTool(tool);
    return "async" in shown && shown.async ? { ...shown, async: false } : shown;
  });
  const { policy, keyId, owner: storingKey } = owner;
  return {
    ...address,
    parent: previous,
    agent: { ...agent, team: spec.agent?.team ?? spec.turn },
    createdAt: Date.now(),
    request: requestOf(spec.request, offered, previous === null ? null : responseId({ ...address, turn: previous })),
    input: withItemIds(own, address, false),
    model: spec.model,
    cacheSalt: spec.cacheSalt,
    affinity: spec.affinity,
    ...(spec.sender && { sender: spec.sender }),
    ...(spec.givenFiles && { givenFiles: spec.givenFiles }),
    tenant: spec.tenant,
    withheld: withheldLabels(offered, owner.access),
    inConversation: false,
    ...(policy && { policy }),
    keyId,
    ...(storingKey !== undefined && { owner: storingKey }),
  };
}

function requestOf(
  request: CreateRequest,
  tools: CreateRequest["tools"],
  previous_response_id: string | null,
): CreateRequest {
  const { text, ...rest } = request;
  return {
    ...rest,
    input: undefined,
    tool_choice: undefined,
    conversation: undefined,
    stream: undefined,
    stream_options: undefined,
    previous_input_messages: undefined,
    kv_transfer_params: undefined,
    ...(text && { text: { ...text, format: undefined } }),
    ...(tools && { tools }),
    previous_response_id,
    background: true,
  } as CreateRequest;
}

/** Begins a run within the limits of its caller. Throws the errors that refuse it. */
async function start(run: RunSpec, { limits, access }: AgentOwner, host: AgentHost): Promise<void> {
  const { config, homes, quotas, waitUntil } = host;
  const stub = quotas.getByName(run.tenant);
  const reservation = limits && reservationOf(run, limits, config);
  if (reservation) await reserveRun(reservation, stub);
  try {
    const specJson = JSON.stringify({ ...run, ...(reservation && { reservation }) } satisfies RunSpec);
    unwrap(await homes.home(run.home).startRun(specJson, randomUUID(), config.conversationLockWaitMs, access));
  } catch (error) {
    // After any other error the run may have begun.
    if (reservation && error instanceof ApiError) {
      waitUntil(endRun({ reservation, usage: [], hasRenewed: false }, stub).catch(() => {}));
    }
    throw error;
  }
}

function reservationOf(
  { home, turn, tenant, keyId, request, input }: RunSpec,
  limits: NonNullable<AgentOwner["limits"]>,
  { keys }: Config,
): RunReservation {
  const { model, max_output_tokens: most } = request;
  const estimatedInput = estimateFrame(request) + estimateTokens(input);
  const used = { input: estimatedInput, cached: 0, output: most ?? keys.reservedOutputTokens };
  const bytes = BYTES_PER_TOKEN * (used.input + used.output);
  return {
    ...{ holder: `run:${home}${turn}`, tenant, keyId, ...limits, estimatedInput },
    tokens: used.input + used.output,
    cost: Math.max(costOf(model ?? "", used, keys.prices), LEAST_COST),
    stored: { ...NOTHING_STORED, stored_bytes: bytes, stored_responses: 1 },
    ...(model != null && { model }),
  };
}

/** The result of a run; a deleted one counts as failed. */
function resultOf(finished: { response: { head: string; output: string } } | null): AgentResult {
  if (!finished) return { status: "failed", error: "Its response was deleted.", output: [] };
  const { head, output } = finished.response;
  const { status, error } = JSON.parse(head) as { status: string; error: { message: string } | null };
  return { status, error: error?.message, output: JSON.parse(output) as OutputItem[] };
}
