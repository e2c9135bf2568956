import { z } from "zod";
import { flatName } from "../tool-names.ts";
import { loadedTools, type Tool, tool } from "../tools.ts";
import type { ClientCall, ClientOutput, ItemType, NameOf } from "./item-type.ts";
import { callId, itemId, itemStatus } from "./parts.ts";
import { answered, COMPLETED, given, normal, status } from "./shapes.ts";

const common = { id: itemId, call_id: callId.nullish(), execution: z.enum(["server", "client"]).nullish() };
const answeredCommon = () => ({ call_id: z.string().nullable(), execution: z.enum(["server", "client"]) });

/** Only a client's call has a call id. */
function withExecution<Given extends { call_id?: unknown; execution?: "server" | "client" | null | undefined }>(
  given: Given,
) {
  const execution = given.execution ?? (given.call_id == null ? ("server" as const) : ("client" as const));
  return { ...given, execution };
}

const call = given("tool_search_call", { ...common, arguments: z.unknown(), status: itemStatus })
  .transform(withExecution)
  .transform(normal("type id call_id execution arguments status", { call_id: null, arguments: {}, ...COMPLETED }));
const output = given("tool_search_output", { ...common, tools: loadedTools, status: itemStatus })
  .transform(withExecution)
  .transform(normal("type id call_id execution status tools", { call_id: null }, COMPLETED));

/** A call whose `execution` is `server` is this server's. */
export const toolSearchCall = {
  prefix: "tsc",
  kind: "call",
  input: call,
  output: () => answered("tool_search_call", { ...answeredCommon(), arguments: z.unknown(), status: status() }),
  events: {},
  called: ({ call_id, execution, arguments: args }: z.output<typeof call>): ClientCall | undefined =>
    execution === "server" || call_id === null
      ? undefined
      : { call_id, flatName: "tool_search", arguments: JSON.stringify(args) },
} as const satisfies ItemType;

export const toolSearchOutput = {
  prefix: "tso",
  kind: "output",
  bringsTools: true,
  input: output,
  output: () => answered("tool_search_output", { ...answeredCommon(), tools: z.array(tool), status: status() }),
  events: {},
  answer: ({ call_id, execution, tools }: z.output<typeof output>, nameOf: NameOf): ClientOutput | undefined =>
    execution === "server" || call_id === null ? undefined : { call_id, output: foundTools(tools, nameOf) },
} as const satisfies ItemType;

/** The text that tells a model which tools its search has found. Their definitions stand with the other tools'. */
export function foundTools(tools: readonly Tool[], nameOf: NameOf = flatName): string {
  const lines = tools.flatMap((tool): string[] => {
    if (tool.type === "namespace") {
      return tool.tools.map((member) => `- ${nameOf(tool.name, member.name)}: ${member.description ?? ""}`);
    }
    const name = "name" in tool ? tool.name : tool.type;
    return [`- ${nameOf(undefined, name)}: ${"description" in tool ? (tool.description ?? "") : ""}`];
  });
  return lines.length === 0 ? "No tools were found." : `These tools can be called now:\n${lines.join("\n")}`;
}
