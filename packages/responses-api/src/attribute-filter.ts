import { list } from "@responses-edge/bounded-io/schemas/collections";
import { describedAs } from "@responses-edge/bounded-io/schemas/described-as";
import { z } from "zod";

/** Filters of searches: comparisons of files' attributes, joined by `and` and `or`. */

/** The attributes that a client gives a file, for filters. */
export type Attributes = Readonly<Record<string, string | number | boolean>>;

/** The maximum of nested filters, and of parallel ones: an object is checked for each file of a store. */
const MAX_DEPTH = 6;
const MAX_FILTERS = 64;
const MAX_COMPARISONS = 256;
const MAX_VALUES = 512;

const text = z.string().max(512);
const value = z.union([text, z.number(), z.boolean()]);
const key = z.string().min(1).max(64);

const comparison = [
  z.object({ type: z.enum(["eq", "ne", "gt", "gte", "lt", "lte"]), key, value }),
  z.object({ type: z.enum(["in", "nin"]), key, value: list(value, { max: MAX_VALUES }) }),
] as const;
type Comparison = z.output<(typeof comparison)[number]>;

export type AttributeFilter = Comparison | { type: "and" | "or"; filters: AttributeFilter[] };

type Compound = z.ZodObject<{ type: z.ZodEnum<{ and: "and"; or: "or" }>; filters: z.ZodType<AttributeFilter[]> }>;

/** Fits no filter, and says why. */
const tooDeep = z.object({
  type: z.enum(["and", "or"]),
  filters: z.unknown().refine(() => false, `Expected at most ${MAX_DEPTH} levels of 'and' and 'or'.`),
}) as unknown as Compound;

/**
 * Joined filters with this many levels of `and` and `or`. The description allows any depth, so that generators make one
 * type.
 */
function compoundOf(depth: number): Compound {
  if (depth === 0) return tooDeep;
  const inner: z.ZodType<AttributeFilter> = z.discriminatedUnion("type", [...comparison, compoundOf(depth - 1)]);
  const described = describedAs(inner, () => z.union([...comparison, compound]));
  return z.object({ type: z.enum(["and", "or"]), filters: list(described, { min: 1, max: MAX_FILTERS }) });
}

const compound = compoundOf(MAX_DEPTH);

export const attributeFilter = z
  .discriminatedUnion("type", [...comparison, compound])
  .refine((filter) => comparisonsIn(filter) <= MAX_COMPARISONS, `Expected at most ${MAX_COMPARISONS} comparisons.`);

function comparisonsIn(filter: AttributeFilter): number {
  if (!("filters" in filter)) return 1;
  return filter.filters.reduce((sum, each) => sum + comparisonsIn(each), 0);
}

/**
 * Tells whether attributes match a filter. An absent attribute, or one of another type, equals nothing, and is neither
 * greater nor less.
 */
export function passes(filter: AttributeFilter, attributes: Attributes): boolean {
  switch (filter.type) {
    case "and":
      return filter.filters.every((each) => passes(each, attributes));
    case "or":
      return filter.filters.some((each) => passes(each, attributes));
    case "in":
      return filter.value.includes(attributeOf(attributes, filter.key) ?? Number.NaN);
    case "nin":
      return !filter.value.includes(attributeOf(attributes, filter.key) ?? Number.NaN);
    case "eq":
      return attributeOf(attributes, filter.key) === filter.value;
    case "ne":
      return attributeOf(attributes, filter.key) !== filter.value;
    case "gt":
      return order(attributeOf(attributes, filter.key), filter.value) > 0;
    case "gte":
      return order(attributeOf(attributes, filter.key), filter.value) >= 0;
    case "lt":
      return order(attributeOf(attributes, filter.key), filter.value) < 0;
    case "lte":
      return order(attributeOf(attributes, filter.key), filter.value) <= 0;
  }
}

function attributeOf(attributes: Attributes, name: string): Attributes[string] | undefined {
  return Object.hasOwn(attributes, name) ? attributes[name] : undefined;
}

/** Below 0 if one value comes before the other; NaN if they have no order. */
function order(one: Attributes[string] | undefined, other: Attributes[string]): number {
  if (typeof one === "number" && typeof other === "number") return one - other;
  if (typeof one === "string" && typeof other === "string") return one < other ? -1 : one > other ? 1 : 0;
  return Number.NaN;
}
