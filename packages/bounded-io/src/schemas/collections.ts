import { z } from "zod";
import type { Steps } from "../long-work/index.ts";
import { describedAs } from "./described-as.ts";

/**
 * Arrays and maps of a request, whose reading ends at the first invalid element. Zod's own read on and keep an issue
 * per element: a body of 12 MB then makes gigabytes of them, and only one is ever shown. The length is checked before
 * any element.
 */

/**
 * The first elements of long arrays, which were read before the array. An entry for each of them would be expensive for
 * the collector.
 */
const readBefore = new WeakMap<readonly unknown[], { schema: z.ZodType; read: z.ZodSafeParseResult<unknown>[] }>();

/** By their schemas, the elements that are valid without a check. */
const plainForms = new WeakMap<z.ZodType, (value: unknown) => unknown>();

/**
 * Lets `read` read the elements of lists that it knows, instead of their schema, which takes twenty times as long. It
 * gives the schema's result, and undefined for all others.
 */
export function withPlainForm<Schema extends z.ZodType>(
  schema: Schema,
  read: (value: unknown) => z.output<Schema> | undefined,
): Schema {
  plainForms.set(schema, read);
  return schema;
}

function readElement<Element extends z.ZodType>(
  element: Element,
  value: unknown,
): z.ZodSafeParseResult<z.output<Element>> {
  const data = plainForms.get(element)?.(value) as z.output<Element> | undefined;
  return data === undefined ? element.safeParse(value) : { success: true, data };
}

/** The time to read an element, in microseconds. */
const UNITS_PER_ELEMENT = 10;

/** Elements per step. */
const ELEMENTS_PER_STEP = 100;

/** Reads the elements of an array in steps, so that reading the `list` of them afterwards takes almost no time. */
export function* readAhead(element: z.ZodType, values: readonly unknown[], max: number): Steps<void> {
  if (values.length <= ELEMENTS_PER_STEP || values.length > max) return;
  const read: z.ZodSafeParseResult<unknown>[] = [];
  readBefore.set(values, { schema: element, read });
  for (const value of values) {
    if (read.length % ELEMENTS_PER_STEP === 0) yield ELEMENTS_PER_STEP * UNITS_PER_ELEMENT;
    const result = readElement(element, value);
    read.push(result);
    if (!result.success) return;
  }
}

interface ListOptions {
  min?: number;
  max?: number;
  /** The field of elements with elements of their own, which count for `max` instead of the element. */
  members?: string;
  /** The issue of an element that cannot be read, where it says more than the element's own ones. */
  explain?: (element: unknown) => z.core.$ZodIssue | undefined;
}

/** An array of `min` to `max` elements. Raises the issues of `z.array`, for at most one element. */
export function list<Element extends z.ZodType>(
  element: Element,
  { min = 0, max = Number.POSITIVE_INFINITY, members, explain }: ListOptions = {},
) {
  const schema = z.transform((value: unknown, context): z.output<Element>[] => {
    if (!Array.isArray(value)) {
      context.addIssue({ code: "invalid_type", expected: "array", input: value });
      return z.NEVER;
    }
    if (value.length > max || (members !== undefined && countWith(value, members) > max)) {
      context.addIssue({ code: "too_big", origin: "array", maximum: max, inclusive: true, input: value });
      return z.NEVER;
    }
    if (value.length < min) {
      context.addIssue({ code: "too_small", origin: "array", minimum: min, inclusive: true, input: value });
      return z.NEVER;
    }
    const elements: z.output<Element>[] = [];
    const before = readBefore.get(value);
    const known = before?.schema === element ? (before.read as z.ZodSafeParseResult<z.output<Element>>[]) : [];
    for (let index = 0; index < value.length; index += 1) {
      const read = known[index] ?? readElement(element, value[index]);
      if (!read.success) {
        const explained = explain?.(value[index]);
        raise(context, explained ? [explained] : read.error.issues, index);
        return z.NEVER;
      }
      elements.push(read.data);
    }
    return elements;
  });
  return describedAs(schema, () => {
    const array = min > 0 ? z.array(element).min(min) : z.array(element);
    return Number.isFinite(max) ? array.max(max) : array;
  });
}

/** The number of elements, where those in the field `members` of an element count instead of it. */
function countWith(elements: readonly unknown[], members: string): number {
  let count = 0;
  for (const element of elements) {
    const own: unknown = typeof element === "object" && element !== null ? Reflect.get(element, members) : undefined;
    count += Array.isArray(own) ? own.length : 1;
  }
  return count;
}

/** An object with keys and values of one kind each. Raises the issues of `z.record`, for at most one key. */
export function map<Value extends z.ZodType>(
  key: z.ZodType<string>,
  value: Value,
  { max = Number.POSITIVE_INFINITY }: { max?: number } = {},
) {
  const schema = z.transform((input: unknown, context): Record<string, z.output<Value>> => {
    if (typeof input !== "object" || input === null || Array.isArray(input)) {
      context.addIssue({ code: "invalid_type", expected: "record", input });
      return z.NEVER;
    }
    const names = Object.keys(input);
    if (names.length > max) {
      context.addIssue({
        code: "custom",
        message: `Expected at most ${max} keys.`,
        params: { code: "object_above_max_properties" },
        input,
      });
      return z.NEVER;
    }
    const entries: Record<string, z.output<Value>> = {};
    for (const name of names) {
      // Assigning it would set the prototype.
      if (name === "__proto__") continue;
      const readKey = key.safeParse(name);
      if (!readKey.success) {
        const { issues } = readKey.error;
        context.addIssue({ code: "invalid_key", origin: "record", issues, path: [name], input: name });
        return z.NEVER;
      }
      const read = value.safeParse((input as Record<string, unknown>)[name]);
      if (!read.success) {
        raise(context, read.error.issues, name);
        return z.NEVER;
      }
      entries[name] = read.data;
    }
    return entries;
  });
  return describedAs(schema, () => z.record(key, value).meta(Number.isFinite(max) ? { maxProperties: max } : {}));
}

/** The issues of an element or value, with the path of its container. */
function raise(context: z.RefinementCtx, issues: readonly z.core.$ZodIssue[], key: PropertyKey): void {
  for (const issue of issues) context.addIssue({ ...issue, path: [key, ...issue.path] } as z.core.$ZodRawIssue);
}
