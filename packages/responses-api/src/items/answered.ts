import { z } from "zod";
import type { ItemType } from "./item-type.ts";
import { ITEMS, type OutputType } from "./registry.ts";
import { once } from "./shapes.ts";

/** The schemas of answered items: with an id, and with all that requests may leave out. They only describe. */

type Items = typeof ITEMS;
type OutputSchema = ReturnType<Items[OutputType]["output"]>;
type StoredSchema = {
  [Type in keyof Items]: Items[Type] extends { stored(): infer Schema } ? Schema : never;
}[keyof Items];

const TYPES: [type: string, ItemType][] = Object.entries(ITEMS);

/** The schemas of the items that a turn puts out, by their types. */
export const outputSchemas = once(
  () => new Map(TYPES.flatMap(([type, { output }]) => (output ? [[type, output() as OutputSchema] as const] : []))),
);

/** All answered items. `StoredInput` are those that are kept of an input and that no output has. */
export const answeredItems = once(() => {
  const OutputItem = z.discriminatedUnion("type", [...outputSchemas().values()] as [OutputSchema]);
  const stored = new Set(TYPES.flatMap(([, each]) => each.stored ?? []));
  const StoredInput = z.union([...stored].map((make) => make()) as [StoredSchema]);
  return { OutputItem, StoredInput, Item: z.union([OutputItem, StoredInput]) };
});
