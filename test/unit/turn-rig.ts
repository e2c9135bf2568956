import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import type { TurnAddress } from "@responses-edge/responses-api/ids";
import type { StreamEvent } from "@responses-edge/responses-api/items/events";
import type { Item } from "@responses-edge/responses-api/items/registry";
import { ClientTools } from "@responses-edge/responses-api/tool-names";
import { tools } from "@responses-edge/responses-api/tools";
import { parse } from "@responses-edge/responses-api/validation-errors";
import { newMeasurements } from "@responses-edge/turn/contract/measurements";
import type { CalledTool, ToolSession } from "@responses-edge/turn/contract/tool-session";
import type { TurnOptions } from "@responses-edge/turn/options";
import type { BatchSink } from "@responses-edge/turn/output-events";
import { isRecord, recordLine } from "@responses-edge/turn/records";
import { programFingerprints } from "@responses-edge/turn/sealed-content/program-fingerprint";
import { compactionCodec } from "@responses-edge/turn/sealed-content/sealer";
import { newTurnState, type TurnState } from "@responses-edge/turn/state";
import { TurnOutput } from "@responses-edge/turn/turn-output";
import { PLUGINS } from "../../src/tools/plugins.ts";

/** The output of a turn without a model or a store, as the lines of its log. */

export const ADDRESS: TurnAddress = { home: "h".repeat(22), turn: "t".repeat(12) };

const TOOLS: Record<string, CalledTool & Record<string, unknown>> = {
  wiki__ask: { kind: "mcp", label: "wiki", name: "ask", approval: false },
  wiki__edit: { kind: "mcp", label: "wiki", name: "edit", approval: true },
  browser_search: { kind: "browser", action: "search" },
  python: { kind: "python" },
};

export const CLIENT_TOOLS = new ClientTools(
  parse(tools, [
    { type: "custom", name: "apply" },
    { type: "namespace", name: "agents", description: "", tools: [{ type: "function", name: "close" }] },
    { type: "tool_search", execution: "client" },
    { type: "local_shell" },
    { type: "shell" },
    { type: "apply_patch" },
  ]),
);

export interface OutputRig {
  output: TurnOutput;
  state: TurnState;
  /** The events and records of a log. */
  lines: string[];
}

/** The fields of the turn that a test changes. */
export interface RigOptions {
  request?: CreateRequest;
  secrets?: Partial<TurnOptions["secrets"]>;
  session?: Partial<ToolSession>;
  outputLength?: number;
  firstInput?: string;
  usedCallIds?: Set<string>;
  isUnread?: boolean;
}

/** `onLine` is called after each new line. */
export function newOutput(
  { state = newTurnState(), lines = [], onLine }: Partial<OutputRig> & { onLine?: (state: TurnState) => void } = {},
  changed: RigOptions = {},
): OutputRig {
  const add = (line: string) => {
    lines.push(line);
    onLine?.(state);
  };
  const include = ["web_search_call.action.sources", "code_interpreter_call.outputs"] as CreateRequest["include"];
  const request: CreateRequest = {
    ...{ model: "m", input: "?", include, stream_options: { include_obfuscation: false } },
    ...changed.request,
  };
  const sink: BatchSink = {
    event: (_, json) => add(json),
    record: (record) => add(recordLine(record)),
    flush: () => undefined,
  };
  const input = changed.firstInput === undefined ? [] : [{ id: changed.firstInput } as Item];
  const output = new TurnOutput(
    {
      asked: { request, address: ADDRESS, model: { name: "m", upstream: "m" }, cacheSalt: "", createdAt: 1_000 },
      past: { history: [], replays: [], input, removed: [] },
      bounds: {
        maxRetries: 0,
        maxFruitless: 0,
        outageMs: 0,
        outputLength: changed.outputLength ?? 1_000_000,
        maxRounds: 32,
        repetitionGuard: "on",
      },
      tools: { plugins: PLUGINS, session: { ...SESSION, ...changed.session } as ToolSession },
      secrets: {
        ...{
          hidesReasoning: false,
          seal: undefined,
          compactions: compactionCodec([], ""),
          programs: programFingerprints([], ""),
        },
        ...changed.secrets,
      },
      host: {
        signal: new AbortController().signal,
        clock: () => 2_000,
        measured: newMeasurements(),
        sink: changed.isUnread ? undefined : sink,
      },
      usedCallIds: changed.usedCallIds ?? new Set(),
      clientTool: (name) => CLIENT_TOOLS.get(name),
      prompted: request,
    },
    state,
  );
  return { output, state, lines };
}

const SESSION: Partial<ToolSession> = {
  open: async () => {},
  container: () => "cntr",
  resolve: (name) => {
    const tool = TOOLS[name];
    return tool && { tool, isOffered: true };
  },
  citationsIn: () => [],
};

export function eventsOf(lines: readonly string[]): StreamEvent[] {
  return lines.filter((line) => !isRecord(line)).map((line) => JSON.parse(line) as StreamEvent);
}

/** The events as `type` and, for deltas, their text. */
export function toldBy(lines: readonly string[]): string[] {
  return eventsOf(lines).map((event) => {
    const type = event.type.replace("response.", "");
    return "delta" in event ? `${type} ${event.delta}` : type;
  });
}
