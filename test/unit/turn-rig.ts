import type { ServerTool } from "../../src/contract/server-tool.ts";
import type { StreamEvent } from "../../src/items/events.ts";
import { ClientTools } from "../../src/protocol/client-tools.ts";
import { responseId, type TurnAddress } from "../../src/protocol/ids.ts";
import { initialResponse } from "../../src/protocol/response.ts";
import { tools } from "../../src/protocol/tools.ts";
import { parse } from "../../src/protocol/validation.ts";
import { HOSTED_TOOLS } from "../../src/tools/hosted-tools.ts";
import { isRecord, recordLine } from "../../src/turn/records.ts";
import { type BuilderOptions, ResponseBuilder } from "../../src/turn/response-builder.ts";
import { newTurnState, type TurnState } from "../../src/turn/state.ts";

/** A builder without a model or a store: what it says is the lines of its log. */

export const ADDRESS: TurnAddress = { home: "h".repeat(22), turn: "t".repeat(12) };

const TOOLS: Record<string, ServerTool & Record<string, unknown>> = {
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

export interface BuilderRig {
  builder: ResponseBuilder;
  state: TurnState;
  /** Events and records, as a log has them. */
  lines: string[];
}

/** `onLine` is called whenever there is one more line. */
export function newBuilder(
  { state = newTurnState(), lines = [], onLine }: Partial<BuilderRig> & { onLine?: (state: TurnState) => void } = {},
  changed: Partial<BuilderOptions> = {},
): BuilderRig {
  const add = (line: string) => {
    lines.push(line);
    onLine?.(state);
  };
  const response = initialResponse({ model: "m", input: "?" }, { id: responseId(ADDRESS), model: "m", createdAt: 1 });
  const builder = new ResponseBuilder(response, state, {
    address: ADDRESS,
    sink: { event: (_, json) => add(json), record: (record) => add(recordLine(record)) },
    obfuscation: false,
    reasoning: "reasoning_text",
    seal: undefined,
    transformations: [],
    clientTool: (name) => CLIENT_TOOLS.get(name),
    allowedCalls: undefined,
    parallelCalls: true,
    serverTool: (name) => TOOLS[name],
    offers: () => true,
    maxServerCalls: Number.POSITIVE_INFINITY,
    hostedTools: HOSTED_TOOLS,
    callDetails: {
      include: ["web_search_call.action.sources", "code_interpreter_call.outputs"],
      container: "cntr",
    },
    citations: undefined,
    usedCallIds: new Set(),
    clock: () => 2_000,
    room: 1_000_000,
    withMessages: false,
    previous: undefined,
    firstInput: undefined,
    ...changed,
  });
  return { builder, state, lines };
}

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
