import { flatName } from "../protocol/client-tools.ts";
import type { InputPart, Item } from "../protocol/items.ts";
import { isClientCall } from "../protocol/response.ts";
import type { Tool } from "../protocol/tools.ts";

/** Calls of the client's tools and their outputs in a conversation, as models of every kind get to see them. */

/** A call that the client answers. */
export interface ClientCall {
  call_id: string;
  /** The name by which the model has called it. */
  flatName: string;
  /** As JSON. */
  arguments: string;
  /** The input of a custom tool, for models that write it as it is. */
  input?: string;
}

/** The id of the call that an item shows, if it is one that the client answers. */
export function calledId(item: Item): string | undefined {
  return isClientCall(item) ? (item.call_id ?? undefined) : undefined;
}

/** The id of the call that an item answers, if it is the client's answer to one. */
export function answeredId(item: Item): string | undefined {
  switch (item.type) {
    case "tool_search_output":
      return item.execution === "server" ? undefined : (item.call_id ?? undefined);
    case "function_call_output":
    case "custom_tool_call_output":
    case "local_shell_call_output":
    case "shell_call_output":
    case "apply_patch_call_output":
      return item.call_id;
    default:
      return undefined;
  }
}

/** The call that an item shows, if it is one that the client answers. */
export function clientCallOf(item: Item): ClientCall | undefined {
  switch (item.type) {
    case "function_call":
      return called(item, flatName(item.namespace, item.name), item.arguments);
    case "custom_tool_call": {
      const json = JSON.stringify({ input: item.input });
      return { ...called(item, flatName(item.namespace, item.name), json), input: item.input };
    }
    case "tool_search_call": {
      const { call_id, execution } = item;
      if (execution === "server" || call_id === null) return undefined;
      return called({ call_id }, "tool_search", JSON.stringify(item.arguments));
    }
    case "local_shell_call": {
      const { type: _, ...action } = item.action;
      const { env, ...rest } = action;
      return called(item, "local_shell", withoutNulls({ ...rest, ...(Object.keys(env).length > 0 && { env }) }));
    }
    case "shell_call":
      return called(item, "shell", withoutNulls(item.action));
    case "apply_patch_call":
      return called(item, "apply_patch", JSON.stringify(item.operation));
    default:
      return undefined;
  }
}

function called({ call_id }: { call_id: string }, name: string, json: string): ClientCall {
  return { call_id, flatName: name, arguments: json };
}

function withoutNulls(action: object): string {
  return JSON.stringify(Object.fromEntries(Object.entries(action).filter(([, value]) => value != null)));
}

/** What a client has answered. */
export interface ClientOutput {
  call_id: string;
  output: string | InputPart[];
}

/** How a model knows a tool, by its namespace and name. */
export type NameOf = (namespace: string | undefined, name: string) => string;

/** The answer that an item is, if it is one of the client's to a call. */
export function clientOutputOf(item: Item, nameOf: NameOf = flatName): ClientOutput | undefined {
  switch (item.type) {
    case "function_call_output":
    case "custom_tool_call_output":
      return item;
    case "tool_search_output": {
      const { call_id, execution, tools } = item;
      return execution === "server" || call_id === null ? undefined : { call_id, output: foundTools(tools, nameOf) };
    }
    case "local_shell_call_output":
      return item;
    case "shell_call_output":
      return { call_id: item.call_id, output: item.output.map(shellText).join("\n\n") };
    case "apply_patch_call_output":
      return { call_id: item.call_id, output: item.output || (item.status === "failed" ? "Failed." : "Done.") };
    default:
      return undefined;
  }
}

/** The parts of what an item answers, by the name of their field, for what looks for pictures in them. */
export function outputParts(item: Item): InputPart[] {
  const isOutput = item.type === "function_call_output" || item.type === "custom_tool_call_output";
  return isOutput && typeof item.output !== "string" ? item.output : [];
}

type ShellOutput = Extract<Item, { type: "shell_call_output" }>["output"][number];

function shellText({ stdout, stderr, outcome }: ShellOutput): string {
  const parts = [stdout, stderr === "" ? "" : `[stderr]\n${stderr}`];
  parts.push(outcome.type === "timeout" ? "[timed out]" : `[exit code ${outcome.exit_code}]`);
  return parts.filter((part) => part !== "").join("\n");
}

/** What a model is told that has searched for tools: their definitions stand beside the other tools'. */
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
