import type {
  ResponseErrorEvent,
  ResponseOutputItemAddedEvent,
  ResponseOutputItemDoneEvent,
  ResponseStreamEvent,
} from "openai/resources/responses/responses";
import { z } from "zod";
import type { ResponseObject } from "../response.ts";
import { outputText, reasoningText, refusal } from "./parts.ts";
import { type ITEMS, type OutputItem, type OutputType, typesWith } from "./registry.ts";
import { at, inContent } from "./shapes.ts";

/**
 * The events of a turn: those of its life, those of every item, and those of each item type. Their types are OpenAI's
 * (`ResponseStreamEvent` of the openai package); this server's additions are declared here. vLLM's own events are not
 * among them: OpenAI's take precedence.
 */

const LIFECYCLE = [
  "response.created",
  "response.queued",
  "response.in_progress",
  "response.completed",
  "response.failed",
  "response.incomplete",
] as const;

const part = () => z.discriminatedUnion("type", [outputText(), refusal(), reasoningText()]);

/** The events of every item and of every part of its content, with the functions that make the rest of their shape. */
const COMMON = {
  "response.content_part.added": () => ({ ...inContent(), part: part() }),
  "response.content_part.done": () => ({ ...inContent(), part: part() }),
};

type OwnEvents = (typeof ITEMS)[OutputType]["events"];
type Merged<Events> = (Events extends unknown ? (events: Events) => void : never) extends (events: infer All) => void
  ? All
  : never;
type EventShapes = typeof COMMON & Merged<OwnEvents>;

const OWN = typesWith("mcp_list_tools").map(({ events }) => events);
const SHAPES = Object.assign({}, COMMON, ...OWN) as EventShapes;

/** Events that carry the whole response. */
export type LifecycleType = (typeof LIFECYCLE)[number];

/** Events with one piece of a text. The commands of a shell call are complete. */
export type DeltaType = Exclude<Extract<keyof EventShapes, `${string}.delta`>, "response.shell_call_command.delta">;

type OpenAIEvent<Type extends ResponseStreamEvent["type"]> = Extract<ResponseStreamEvent, { type: Type }>;
type ArgumentsDone = "response.function_call_arguments.done";

export interface LifecycleEvent {
  type: LifecycleType;
  sequence_number: number;
  response: ResponseObject;
}

/** OpenAI's is flat; clients of Chat Completions expect the nested one. */
type ErrorEvent = ResponseErrorEvent & {
  error: { type: string; code: string; message: string; param: string | null };
};

/** An event about one item, or about a failure of the whole. */
export type ItemEvent =
  | OpenAIEvent<Exclude<keyof EventShapes, DeltaType | ArgumentsDone>>
  | (Omit<ResponseOutputItemAddedEvent, "item"> & { item: OutputItem })
  | (Omit<ResponseOutputItemDoneEvent, "item"> & { item: OutputItem })
  /** OpenAI's documentation has the name, its package does not. */
  | (OpenAIEvent<ArgumentsDone> & { name: string })
  | ErrorEvent;

export type DeltaEvent = OpenAIEvent<DeltaType>;

/** Every event of a stream. */
export type StreamEvent = LifecycleEvent | DeltaEvent | ItemEvent;

/** An event before it has a number. */
export type Unnumbered<E> = E extends unknown ? Omit<E, "sequence_number"> : never;

const NAMES: ReadonlySet<string> = new Set([
  ...LIFECYCLE,
  "response.output_item.added",
  "response.output_item.done",
  ...Object.keys(SHAPES),
  "error",
]);

/** Tells whether a turn makes events of a type. */
export function isEventType(type: string): boolean {
  return NAMES.has(type);
}

/** Tells whether an event carries one piece of a text. */
export function isDelta<Event extends { type: string }>(event: Event): event is Extract<Event, { type: DeltaType }> {
  return "item_id" in event && event.type.endsWith(".delta");
}

type EventSchema = {
  [Type in keyof EventShapes]: z.ZodObject<{ type: z.ZodLiteral<Type> } & ReturnType<EventShapes[Type]>, z.core.$strip>;
}[keyof EventShapes];

/**
 * Makes the schemas of all events. `response` is the whole response in the events of its life; `item` is any output
 * item.
 */
export function eventSchemas<Response extends z.ZodType, Item extends z.ZodType>(response: Response, item: Item) {
  const { sequence_number, ...rest } = at();
  const event = <const Type extends string, Shape extends z.ZodRawShape>(type: Type, shape: Shape) =>
    z.object({ type: z.literal(type), ...shape });
  const life = <const Type extends LifecycleType>(type: Type) => event(type, { sequence_number, response });
  const own = Object.entries(SHAPES).map(([type, shape]) => event(type, shape())) as unknown as [EventSchema];
  const text = z.string();
  return z.discriminatedUnion("type", [
    ...(LIFECYCLE.map(life) as [ReturnType<typeof life>]),
    event("response.output_item.added", { sequence_number, ...rest, item }),
    event("response.output_item.done", { sequence_number, ...rest, item }),
    ...own,
    event("error", {
      sequence_number,
      code: text.nullable(),
      message: text,
      param: text.nullable(),
      error: z.object({ type: text, code: text, message: text, param: text.nullable() }),
    }),
  ]);
}
