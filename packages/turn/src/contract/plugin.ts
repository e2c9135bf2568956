import type { DeltaType, ItemEvent } from "@responses-edge/responses-api/items/events";
import type { Item, OutputItem, ServerCall } from "@responses-edge/responses-api/items/registry";
import type { Replay, ToolDescription, ToolExchange, ToolNamespace } from "./engine.ts";
import type { CalledTool, ToolOutcome } from "./tool-session.ts";

/**
 * A hosted tool, as engines and the turn need it. Each has a folder in `src/tools/` with an object of this type. Its
 * functions are called only with its own tools and items.
 */
export interface Plugin<Tool extends CalledTool = CalledTool, Call extends ServerCall = ServerCall> {
  /** Its identifier, also in logs. */
  readonly kind: Tool["kind"];

  /** Set if its calls change nothing: one that a crash has cut off is repeated. */
  readonly isRepeatable?: true;

  /** Its namespace for gpt-oss. Absent for a tool whose tools are functions for every model. */
  readonly namespace?: ToolNamespace;
  /** Its functions, for other models. */
  readonly functions?: readonly ToolDescription[];
  /** Its tools by the names that models say: full names (`browser.search`) and those of functions (`browser_search`). */
  readonly tools?: ReadonlyMap<string, Tool>;
  /** The full name of a tool in the namespace, as in `ToolExchange` and as gpt-oss writes it. */
  fullName?(tool: Tool): string;
  /** A call as a function call. Without this function it has the exchange's own name and arguments. */
  toFunctionCall?(exchange: ToolExchange): { name: string; arguments: string };

  /** The item that shows a call. */
  readonly item: CallItem<Tool, Call>;

  /** Tell a model of the items that a client gives back, by their types. No two tools have one type. */
  readonly exchanges?: Exchanges;
}

/**
 * The call and answer in an item of each type, as far as the item shows them. Undefined if it tells a model nothing.
 * `items` are those of the prompt; the array never changes.
 */
type Exchanges = {
  readonly [Type in Item["type"]]?: (
    item: Extract<Item, { type: Type }>,
    items: readonly Item[],
  ) => ToolExchange | undefined;
};

/** The output item of a call, and its events beside those that all items have. */
export interface CallItem<Tool extends CalledTool = CalledTool, Call extends ServerCall = ServerCall> {
  readonly type: Call["type"];
  /**
   * Tells whether a call can be shown, of which the model has written `text` so far. `isComplete`: it writes no more.
   */
  canShow(tool: Tool, text: string, isComplete: boolean): boolean;
  /** The item as it is added, without the text that `written` shows. */
  create(tool: Tool, begun: BegunCall): Call;
  /** The model's own words, where the item shows them while they are written. */
  readonly written?: WrittenText;
  /** The item that asks the client to approve a call, for one that needs it: it is then not made. */
  approvalRequest?(tool: Tool, text: string, newId: (type: OutputItem["type"]) => string): OutputItem | undefined;
  /** Called before a call is run. Gives its event, if OpenAI has one. */
  start?(item: Call): CallEventType;
  /** Called after a call has been run; the item has its status. Gives its event, if OpenAI has one. */
  finish(item: Call, outcome: ToolOutcome, include: readonly string[]): CallEventType | undefined;
  /** Makes separate items with the result, one after another: `newId` gives the id of the next item. */
  results?(outcome: ToolOutcome, item: Call, newId: (type: OutputItem["type"]) => string): Iterable<OutputItem>;
  /** The tool of an item that was cut off while the model wrote it. */
  toolOf?(item: Call): Tool | undefined;
  /** The status of a call that was cut off, if OpenAI's item has no `incomplete`. */
  readonly cutOff?: "failed";
  /**
   * The length that a call's result adds to the stored item, in UTF-16 units of JSON. Without this function it is
   * small.
   */
  resultLength?(item: Call): number;
}

/** The facts that an item is made of. */
export interface BegunCall {
  id: string;
  /** All text of the model so far. */
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
  /** The text of a call without any. */
  readonly whenEmpty?: string;
}

/** The fields that every event of an item has. */
interface ItemPlace {
  item_id: string;
  output_index: number;
}

/** The type of an event that has only the fields that all events of an item have. */
type CallEventType = Bare<Extract<ItemEvent, ItemPlace>>["type"];
type Bare<Event> = Event extends unknown ? (Exclude<keyof Event, CommonKey> extends never ? Event : never) : never;
type CommonKey = keyof ItemPlace | "type" | "sequence_number";

/** The set of hosted tools. */
export class Plugins {
  readonly #tools: readonly Plugin[];
  readonly #byKind: ReadonlyMap<string, Plugin>;
  /** By the names that tools have in their namespaces. */
  readonly #byFullName: ReadonlyMap<string, Plugin>;
  readonly #exchanges: Exchanges;

  /** Earlier plugins are asked first about a call that was cut off and that several may claim. */
  constructor(tools: readonly Plugin[]) {
    this.#tools = tools;
    this.#byKind = new Map(tools.map((tool) => [tool.kind, tool]));
    this.#byFullName = new Map(
      tools.flatMap((tool) => (tool.namespace ? fullNames(tool.namespace).map((name) => [name, tool] as const) : [])),
    );
    this.#exchanges = Object.assign({}, ...tools.map(({ exchanges }) => exchanges));
  }

  /** The hosted tool to which a tool belongs. Throws TypeError for an unknown kind. */
  of({ kind }: CalledTool): Plugin {
    const tool = this.#byKind.get(kind);
    if (!tool) throw new TypeError(`There is no hosted tool '${kind}'.`);
    return tool;
  }

  /**
   * The tool of an item that was cut off while the model wrote it. Only some items are shown before they are complete.
   */
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

  /** Tells whether a tool, by its name in an exchange, is in a namespace of gpt-oss. If not, it is a function. */
  isInNamespace(name: string): boolean {
    return this.#byFullName.has(name);
  }

  /** An exchange's call as a function call, for models without namespaces. */
  toFunctionCall(exchange: ToolExchange): { name: string; arguments: string } {
    return this.#byFullName.get(exchange.name)?.toFunctionCall?.(exchange) ?? exchange;
  }

  /**
   * The call and answer of an item: as they were stored (`replay` is the item's own), or as far as the item shows them.
   * Undefined if there is nothing to tell a model. `items` are those of the prompt.
   */
  exchangeOf(item: Item, replay: Replay | undefined, items: readonly Item[]): ToolExchange | undefined {
    if (replay?.exchange) return replay.exchange;
    return this.#exchanges[item.type]?.(item as never, items);
  }
}

/** The full names of a namespace's tools. A namespace without tools is a tool itself. */
export function fullNames({ name, tools }: ToolNamespace): string[] {
  return tools.length === 0 ? [name] : tools.map((tool) => `${name}.${tool.name}`);
}

/** The step of an unstored exchange: such calls count as made one after another. */
export function stepOf({ id }: Item): string {
  return id ?? crypto.randomUUID();
}
