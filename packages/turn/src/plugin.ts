import type { DeltaType, ItemEvent } from "@responses-edge/responses-api/items/events";
import type { Item, OutputItem, ServerCall } from "@responses-edge/responses-api/items/registry";
import type { Replay, ToolDescription, ToolExchange, ToolNamespace } from "./engine.ts";
import type { CalledTool, ToolOutcome } from "./tool-session.ts";

/**
 * A tool that this server runs, as engines and the turn must know it. Each has one folder in `src/tools/`, whose object
 * of this type answers for it. It is asked about its own tools and items only.
 */
export interface Plugin<Tool extends CalledTool = CalledTool, Call extends ServerCall = ServerCall> {
  /** Tells it from the others, also in logs. */
  readonly kind: Tool["kind"];

  /** Its calls change nothing: one that a crash has cut off is made again. */
  readonly isRepeatable?: true;

  /** As gpt-oss knows it. Absent for a tool whose tools are functions for every model. */
  readonly namespace?: ToolNamespace;
  /** As functions, for models of other kinds. */
  readonly functions?: readonly ToolDescription[];
  /** The tool that a model means, by its full name (`browser.search`) or by a function's (`browser_search`). */
  toolNamed?(name: string): Tool | undefined;
  /** The full name of a tool in the namespace: as `ToolExchange` has it, and as gpt-oss writes it. */
  fullName?(tool: Tool): string;
  /** A call as a function's; without this word, it has the exchange's own name and arguments. */
  toFunctionCall?(exchange: ToolExchange): { name: string; arguments: string };

  /** The item that shows a call. */
  readonly item: CallItem<Tool, Call>;

  /**
   * The call that an item shows and how it was answered, as far as the item tells, for one that a client gives back.
   * Undefined where it tells a model nothing. `items` are those of the prompt; the array never changes.
   */
  exchangeOf?(item: Item, items: readonly Item[]): ToolExchange | undefined;
}

/** The output item of a call, and its events beside those that all items have. */
export interface CallItem<Tool extends CalledTool = CalledTool, Call extends ServerCall = ServerCall> {
  readonly type: Call["type"];
  /** Tells whether a call can be shown, of which the model has written `text` so far. `isComplete`: it writes no more. */
  canShow(tool: Tool, text: string, isComplete: boolean): boolean;
  /** The item as it is added, with nothing yet of what `written` shows. */
  create(tool: Tool, begun: BegunCall): Call;
  /** The model's own words, where the item shows them while they are written. */
  readonly written?: WrittenText;
  /** The item that asks the client to approve a call, for one that needs it: it is then not made. */
  approvalRequest?(tool: Tool, text: string, newId: (type: OutputItem["type"]) => string): OutputItem | undefined;
  /** The call is about to be run. Gives the event that says so, where OpenAI has one. */
  start?(item: Call): CallEventType;
  /** The call has been run; the item's status says how it went. Gives the event that says so, where OpenAI has one. */
  finish(item: Call, outcome: ToolOutcome, include: readonly string[]): CallEventType | undefined;
  /** An item of its own in which the result stands. */
  result?(outcome: ToolOutcome, newId: (type: OutputItem["type"]) => string): OutputItem;
  /** The tool of an item that was cut off while the model wrote it. */
  toolOf?(item: Call): Tool | undefined;
  /** The status of a call that was cut off, where OpenAI's item has no `incomplete`. */
  readonly cutOff?: "failed";
  /** The length of what a call's result adds to the item as it is kept, in UTF-16 units of JSON. Without this word it is small. */
  resultLength?(item: Call): number;
}

/** The facts that an item is made of. */
export interface BegunCall {
  id: string;
  /** All that the model has written so far. */
  text: string;
  /** The container in which the turn's code runs, as `container_id`. */
  container: string;
  /** The id of the request by which the client has approved the call. */
  approvalRequest: string | null;
}

/** The field of an item in which the model's own words stand. */
interface WrittenText {
  readonly field: "arguments" | "code";
  readonly deltaEvent: DeltaType;
  /** Says that the model writes no more. */
  readonly doneEvent: "response.mcp_call_arguments.done" | "response.code_interpreter_call_code.done";
  /** The words of a call that was not shown from its beginning, as its first delta. */
  whenShown?(text: string): string;
  /** The words of a call that has come without any. */
  readonly whenEmpty?: string;
}

/** The fields that every event of an item has. */
interface ItemPlace {
  item_id: string;
  output_index: number;
}

/** The type of an event that has nothing more than what every event of an item has. */
type CallEventType = Bare<Extract<ItemEvent, ItemPlace>>["type"];
type Bare<Event> = Event extends unknown ? (Exclude<keyof Event, CommonKey> extends never ? Event : never) : never;
type CommonKey = keyof ItemPlace | "type" | "sequence_number";

/** The hosted tools that there are. */
export class Plugins {
  readonly #tools: readonly Plugin[];
  readonly #byKind: ReadonlyMap<string, Plugin>;
  /** By the names that tools have in their namespaces. */
  readonly #byFullName: ReadonlyMap<string, Plugin>;

  /** The first of several to which an item could belong is asked first. */
  constructor(tools: readonly Plugin[]) {
    this.#tools = tools;
    this.#byKind = new Map(tools.map((tool) => [tool.kind, tool]));
    this.#byFullName = new Map(
      tools.flatMap((tool) => (tool.namespace ? fullNames(tool.namespace).map((name) => [name, tool] as const) : [])),
    );
  }

  /** The hosted tool to which a tool belongs. Throws TypeError for one of a kind that there is not. */
  of({ kind }: CalledTool): Plugin {
    const tool = this.#byKind.get(kind);
    if (!tool) throw new TypeError(`There is no hosted tool '${kind}'.`);
    return tool;
  }

  /** The tool of an item that was cut off while the model wrote it; only some are shown before they are complete. */
  toolOf(item: ServerCall): CalledTool | undefined {
    for (const { item: own } of this.#tools) {
      const tool = own.type === item.type ? own.toolOf?.(item) : undefined;
      if (tool) return tool;
    }
    return undefined;
  }

  /** The names of gpt-oss's namespaces. */
  get namespaces(): string[] {
    return this.#tools.flatMap(({ namespace }) => namespace?.name ?? []);
  }

  /** Tells whether a tool, by the name that its exchange has, is in a namespace of gpt-oss's: else it is a function. */
  isInNamespace(name: string): boolean {
    return this.#byFullName.has(name);
  }

  /** An exchange's call as a function's, for models that know no namespaces. */
  toFunctionCall(exchange: ToolExchange): { name: string; arguments: string } {
    return this.#byFullName.get(exchange.name)?.toFunctionCall?.(exchange) ?? exchange;
  }

  /**
   * The call that an item shows and how it was answered: as it was kept (`replay` is the item's own), or as far as the
   * item tells. Undefined where there is nothing to be told to a model. `items` are those of the prompt.
   */
  exchangeOf(item: Item, replay: Replay | undefined, items: readonly Item[]): ToolExchange | undefined {
    if (replay?.exchange) return replay.exchange;
    // Words are no calls.
    if (item.type === "message") return undefined;
    for (const tool of this.#tools) {
      const exchange = tool.exchangeOf?.(item, items);
      if (exchange) return exchange;
    }
    return undefined;
  }
}

/** Tools of a namespace by their full names; a namespace without tools is one itself. */
export function fullNames({ name, tools }: ToolNamespace): string[] {
  return tools.length === 0 ? [name] : tools.map((tool) => `${name}.${tool.name}`);
}

/** The step of an exchange that was not kept: such calls are taken to have been made one after another. */
export function stepOf({ id }: Item): string {
  return id ?? crypto.randomUUID();
}
