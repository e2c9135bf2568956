import { z } from "zod";
import type { ItemType } from "./item-type.ts";
import { ITEMS, type OutputType } from "./registry.ts";
import { once } from "./shapes.ts";

/** The schemas of items in answers: with an id, and with all optional fields of requests. They only describe. */

type Items = typeof ITEMS;
type OutputSchema = ReturnType<Items[OutputType]["output"]>;
type StoredSchema = {
  [Type in keyof Items]: Items[Type] extends { stored(): infer Schema } ? Schema : never;
}[keyof Items];

const TYPES: [type: string, ItemType][] = Object.entries(ITEMS);

/** The schemas of the items in a turn's output, by their types. */
export const outputSchemas = once(
  () => new Map(TYPES.flatMap(([type, { output }]) => (output ? [[type, output() as OutputSchema] as const] : []))),
);

/** All items in answers. `StoredInput` are stored input items that no output has. */
export const answeredItems = once(() => {
  const OutputItem = z.discriminatedUnion("type", [...outputSchemas().values()] as [OutputSchema]);
  const stored = new Set(TYPES.flatMap(([, each]) => each.stored ?? []));
  const StoredInput = z.union([...stored].map((make) => make()) as [StoredSchema]);
  return { OutputItem, StoredInput, Item: z.union([OutputItem, StoredInput]) };
});
