import { createHash } from "node:crypto";
import { type HostedType, hostedOf, isHosted } from "./hosted-tools.ts";
import { mayBeCalled } from "./tool-fields.ts";
import { type ChosenTool, chosenTools, type FunctionTool, type Tool, type ToolChoice } from "./tools.ts";

/**
 * The names of a request's tools: the tools that the client runs, by the names that a model calls; which tools clash; and
 * which ones a choice names. Models do not know OpenAI's namespaces and tool types: each tool has
 * one flat name (`flatName`), which engines and the turn use. Items have the tool's own name, and its namespace.
 */

/** The key of a choice or a tool among hosted ones, each of which a request has once; undefined for a tool that the client runs. */
export function hostedKey(tool: Tool | ChosenTool): string | undefined {
  if (tool.type === "mcp") return `mcp:${tool.server_label}`;
  if (tool.type !== "tool_search") return hostedOf(tool.type)?.name;
  return "execution" in tool && tool.execution === "client" ? undefined : tool.type;
}

type NotHosted = Exclude<Tool, { type: HostedType }>;
type RunByClient = Exclude<NotHosted, { type: "namespace" }>;

export interface ClientTool {
  /** The name by which a model calls it. */
  flatName: string;
  /** Its name in items; that of its type if it has none. */
  name: string;
  namespace?: string;
  /** The client's description of the namespace. */
  namespaceDescription?: string;
  tool: RunByClient;
  /** Its position in a list of tools. */
  path: (string | number)[];
}

/** vLLM's and OpenAI's limit on a function's name. */
const MAX_FLAT_LENGTH = 64;

const HASH_LENGTH = 16;

/**
 * Tells whether a call's namespace is no namespace of the client's: OpenAI gives a deferred function that a search has
 * found its own name as its namespace, and the Agents SDKs find the function by that.
 */
export function isOwnNamespace(namespace: string, name: string): boolean {
  return namespace === name;
}

/**
 * The name of a namespace's tool for models: `namespace__name`, with a hash at the end if it would be too long. It
 * depends on nothing else, so that a call has the same name in every prompt.
 */
export function flatName(namespace: string | null | undefined, name: string): string {
  if (namespace == null || isOwnNamespace(namespace, name)) return name;
  const flat = `${namespace}__${name}`.replaceAll(/[^A-Za-z0-9_-]/g, "_");
  if (flat.length <= MAX_FLAT_LENGTH) return flat;
  const hash = createHash("sha256").update(`${namespace}\n${name}`).digest("hex").slice(0, HASH_LENGTH);
  return `${flat.slice(0, MAX_FLAT_LENGTH - HASH_LENGTH - 1)}_${hash}`;
}

/** A tool as people write it: `namespace.name`. */
export function fullNameOf({ namespace, name }: Pick<ClientTool, "namespace" | "name">): string {
  return namespace === undefined ? name : `${namespace}.${name}`;
}

function clientToolsOf(tool: NotHosted, index: number): ClientTool[] {
  switch (tool.type) {
    case "function":
    case "custom":
      return [{ flatName: tool.name, name: tool.name, tool, path: [index, "name"] }];
    case "namespace":
      return tool.tools.map((member, at) => ({
        flatName: flatName(tool.name, member.name),
        name: member.name,
        namespace: tool.name,
        namespaceDescription: tool.description,
        tool: member,
        path: [index, "tools", at, "name"],
      }));
    case "tool_search":
    case "local_shell":
    case "shell":
    case "apply_patch":
    case "programmatic_tool_calling":
      return [{ flatName: tool.type, name: tool.type, tool, path: [index, "type"] }];
  }
}

/** The client's tools of a request by their flat names: what makes them names again. */
export class ClientTools {
  /** In the order of the list. Two may have one name. */
  readonly listed: readonly ClientTool[];
  /** Those that the model may call itself. The later one of two tools with one name counts. */
  readonly byName: ReadonlyMap<string, ClientTool>;
  readonly all: readonly ClientTool[];
  /** The tools that the model's programs may call. */
  readonly forPrograms: readonly ClientTool[];

  constructor(tools: readonly Tool[]) {
    const listed: ClientTool[] = [];
    for (const [index, tool] of tools.entries()) {
      if (hostedKey(tool) === undefined) listed.push(...clientToolsOf(tool as NotHosted, index));
    }
    this.listed = listed;
    const direct = listed.filter(({ tool }) => mayBeCalled(tool, "direct"));
    this.byName = new Map(direct.map((tool) => [tool.flatName, tool]));
    this.forPrograms = listed.filter(({ tool }) => mayBeCalled(tool, "programmatic"));
    this.all = [...this.byName.values()];
  }

  /** The same, made once for each list. */
  static of(tools: readonly Tool[] | null | undefined): ClientTools {
    if (tools == null) return NONE;
    let known = made.get(tools);
    if (!known) {
      known = new ClientTools(tools);
      made.set(tools, known);
    }
    return known;
  }

  get(name: string): ClientTool | undefined {
    return this.byName.get(name);
  }

  /** The tools that a choice names: one, or all of a namespace; none where it names a hosted one. */
  chosen(choice: ChosenTool): ClientTool[] {
    if (isHosted(choice)) return [];
    switch (choice.type) {
      case "tool_search":
      case "local_shell":
      case "shell":
      case "apply_patch":
      case "programmatic_tool_calling": {
        const found = this.byName.get(choice.type);
        return found?.tool.type === choice.type ? [found] : [];
      }
      case "namespace":
        return this.all.filter(({ namespace }) => namespace === choice.name);
      case "function":
      case "custom": {
        const { type, name, namespace } = choice;
        const isOfType = (tool: ClientTool | undefined) => tool?.tool.type === type;
        const exact = this.byName.get(flatName(namespace, name));
        if (exact && isOfType(exact)) return [exact];
        if (namespace !== undefined) return [];
        const others = this.all.filter((tool) => isOfType(tool) && (tool.name === name || fullNameOf(tool) === name));
        return others.length === 1 ? others : [];
      }
    }
  }

  /** The tool that a choice forces, if it is one of these. */
  named(choice: ToolChoice | null | undefined): ClientTool | undefined {
    if (choice == null || typeof choice === "string" || choice.type === "allowed_tools") return undefined;
    return this.chosen(choice)[0];
  }

  /**
   * The tools that a model may call: none under `none`; under `allowed_tools`, or a choice of a hosted tool, those that
   * are chosen; beside one that is forced the others, too: the model server binds the call to its name.
   */
  offered(choice: ToolChoice | null | undefined): readonly ClientTool[] {
    if (choice == null) return this.all;
    if (choice === "none") return [];
    const chosen = this.named(choice) ? undefined : chosenTools(choice);
    if (!chosen) return this.all;
    const names = new Set(chosen.flatMap((each) => this.chosen(each)).map((tool) => tool.flatName));
    return this.all.filter((tool) => names.has(tool.flatName));
  }
}

const NONE = new ClientTools([]);
const made = new WeakMap<readonly Tool[], ClientTools>();

/** Tells whether a tool is offered only once a search has found it. */
export function isDeferred(tool: Tool | FunctionTool): boolean {
  return "defer_loading" in tool && tool.defer_loading === true;
}

/** Two tools that have, or would have for a model, the same name: the place of the second one, and what to say of it. */
export function clashingTools(tools: readonly Tool[]): { path: (string | number)[]; message: string } | undefined {
  const hosted = new Set<string>();
  for (const [index, tool] of tools.entries()) {
    const key = hostedKey(tool);
    if (key !== undefined && hosted.has(key)) {
      const field = tool.type === "mcp" ? "server_label" : "type";
      return { path: [index, field], message: `The tool ${field} '${key.replace(/^mcp:/, "")}' is used twice.` };
    }
    if (key !== undefined) hosted.add(key);
  }
  const known = new Map<string, string>();
  // A server's search is a function for models, too.
  if (hosted.has("tool_search")) known.set("tool_search", "tool_search");
  for (const tool of ClientTools.of(tools).listed) {
    const { flatName, path } = tool;
    const name = fullNameOf(tool);
    const other = known.get(flatName);
    if (other === name) return { path, message: `The tool ${path.at(-1)} '${name}' is used twice.` };
    if (other !== undefined) {
      return { path, message: `The tools '${other}' and '${name}' would both be '${flatName}' to the model.` };
    }
    known.set(flatName, name);
  }
  return undefined;
}

/** The index of a tool that only programs may call, where the model can write none; -1 if there is none. */
export function uncallableTool(tools: readonly Tool[]): number {
  if (tools.some(({ type }) => type === "programmatic_tool_calling")) return -1;
  return tools.findIndex((tool) =>
    (tool.type === "namespace" ? tool.tools : [tool]).some((each) => !mayBeCalled(each, "direct")),
  );
}

/** The fault of a choice of tools: it leaves none, or names one that is not there. */
export function wrongChoice(choice: ToolChoice | null | undefined, tools: readonly Tool[]): string | undefined {
  if (choice == null || choice === "auto" || choice === "none") return undefined;
  if (typeof choice === "string") {
    return tools.length === 0 ? "Tool choice 'required' must be specified with 'tools' parameter." : undefined;
  }
  const hosted = new Set(tools.map(hostedKey));
  const clients = ClientTools.of(tools);
  const isThere = (chosen: ChosenTool) => {
    const key = hostedKey(chosen);
    return (key !== undefined && hosted.has(key)) || clients.chosen(chosen).length > 0;
  };
  const missing = chosenTools(choice)?.find((chosen) => !isThere(chosen));
  if (!missing) return undefined;
  const name = "name" in missing && missing.type !== "mcp" ? missing.name : undefined;
  const label = missing.type === "mcp" ? missing.server_label : missing.type;
  return `Tool choice '${name ?? label}' not found in 'tools' parameter.`;
}
