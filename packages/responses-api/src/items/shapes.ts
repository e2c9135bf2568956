import { z } from "zod";

/** Helpers of the descriptions of item types: normal forms, answered items, and the fields of events. */

/** An item in a request. */
export function given<const Type extends string, Shape extends z.ZodRawShape>(type: Type, shape: Shape) {
  return z.object({ type: z.literal(type), ...shape });
}

/**
 * Gives an item its normal form: the fields in `names`, in that order. A `fixed` field always has that value. Any other
 * absent or null field has its default, and is left out without one.
 */
export function normal<
  const Names extends string,
  const Defaults extends Values<Words<Names>> = Record<never, never>,
  const Fixed extends Values<Words<Names>> = Record<never, never>,
>(names: Names, defaults = {} as Defaults, fixed = {} as Fixed) {
  const rules = names.split(" ").map((name) => ({
    name,
    isFixed: name in fixed,
    value: (name in fixed ? fixed : (defaults as Values))[name as Words<Names>],
  }));
  return <Fields extends object>(fields: Fields): Normal<Fields, Words<Names>, Defaults, Fixed> => {
    const item: Record<string, unknown> = {};
    for (const { name, isFixed, value: own } of rules) {
      const value = isFixed ? own : ((fields as Values)[name] ?? own);
      if (value !== undefined) item[name] = value;
    }
    return item as Normal<Fields, Words<Names>, Defaults, Fixed>;
  };
}

type Words<Text extends string> = Text extends `${infer Word} ${infer Rest}` ? Word | Words<Rest> : Text;
type Values<Name extends string = string> = { readonly [Key in Name]?: unknown };
type Normal<Fields, Name extends string, Defaults, Fixed> = Flat<
  { [Key in Name & keyof Fixed]: Fixed[Key] } & {
    [Key in Exclude<Name & keyof Defaults, keyof Fixed>]: NonNullable<Fields[Key & keyof Fields]> | Defaults[Key];
  } & {
    [Key in Exclude<Name & keyof Fields, keyof Defaults | keyof Fixed | NullishKey<Fields>>]: Fields[Key];
  } & { [Key in Exclude<Name & NullishKey<Fields>, keyof Defaults | keyof Fixed>]?: NonNullable<Fields[Key]> }
>;
type NullishKey<Fields> = {
  [Key in keyof Fields]-?: undefined extends Fields[Key] ? Key : null extends Fields[Key] ? Key : never;
}[keyof Fields];
type Flat<Type> = { -readonly [Key in keyof Type]: Type[Key] };

/** The status of an item that a client sends without one. */
export const COMPLETED = { status: "completed" } as const;

/** Makes a value at its first use: an isolate that never serves `/openapi.json` never makes its schemas. */
export function once<Value>(make: () => Value): () => Value {
  let made: { value: Value } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

/** The JSON of an action without the fields that are null. */
export function withoutNulls(action: object): string {
  return JSON.stringify(Object.fromEntries(Object.entries(action).filter(([, value]) => value != null)));
}

/** The status of most items. */
export const status = once(() => z.enum(["in_progress", "completed", "incomplete"]));

/** The agent of an item or an event, in responses with `multi_agent`. */
export const agent = once(() => z.object({ agent_name: z.string() }).optional());

/** An item as it is answered, with its id. */
export function answered<const Type extends string, Shape extends z.ZodRawShape>(type: Type, shape: Shape) {
  return z.object({ type: z.literal(type), id: z.string(), agent: agent(), ...shape });
}

/** The fields of every event about an item, of its deltas, and of those about a part of its content. */
export const at = once(() => ({
  sequence_number: z.int().min(0),
  output_index: z.int().min(0),
  agent: agent(),
}));
export const inItem = once(() => ({ item_id: z.string(), ...at() }));
/** `obfuscation` is padding that hides the length of a delta (`stream_options.include_obfuscation`). */
export const delta = once(() => ({ delta: z.string(), obfuscation: z.string().optional() }));
export const itemDelta = once(() => ({ ...inItem(), ...delta() }));
export const inContent = once(() => ({ ...inItem(), content_index: z.int().min(0) }));
export const contentDelta = once(() => ({ ...inContent(), ...delta() }));
