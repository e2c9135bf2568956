import { formatPath } from "@responses-edge/responses-api/validation-errors";
import type { z } from "zod";

/**
 * The declaration of one variable. Its configuration, its default and its row of docs/reference/configuration.md are all derived
 * from this.
 */
export interface Variable<Name extends string = string, Schema extends z.ZodType = z.ZodType> {
  readonly name: Name;
  /**
   * Reads the text of the variable. `default` stands before the value's transforms, so that the reference can show it;
   * `optional` has none.
   */
  readonly schema: Schema;
  /** Tells operators what the variable does, in Markdown. Links are relative to docs/reference/. */
  readonly meaning: string;
}

/** Declares a variable. */
export function variable<const Name extends string, Schema extends z.ZodType>(
  name: Name,
  schema: Schema,
  meaning: string,
): Variable<Name, Schema> {
  return { name, schema, meaning };
}

/** Variables that belong together, by the names of their values in the code. */
export interface Section<Variables extends Readonly<Record<string, Variable>> = Readonly<Record<string, Variable>>> {
  /** The heading of the section in docs/reference/configuration.md. */
  readonly title: string;
  readonly variables: Variables;
}

/** The values of the variables of a section. */
export type ValuesOf<Any extends Section> = {
  -readonly [Key in keyof Any["variables"]]: z.output<Any["variables"][Key]["schema"]>;
};

/** The names of the variables of a section, or of several. */
export type NameIn<Any extends Section> = Any extends Section
  ? Any["variables"][keyof Any["variables"]]["name"]
  : never;

/** A variable at fault, the value that is expected, and its place within the variable's. None contains the value. */
export type Mistake = readonly [name: string, expected: string, place?: string];

/** A mistake in words, for operators: its place may name the keys that they have chosen. */
export function mistakeText([name, expected, place = ""]: Mistake): string {
  return `${name}: ${place}${expected}`;
}

/**
 * Reads the variables of a section, each by itself, so that no mistake hides another. A variable at fault gets its
 * default, and is added to `mistakes`.
 */
export function readSection<const Any extends Section>(
  { variables }: Any,
  env: object,
  mistakes: Mistake[],
): ValuesOf<Any> {
  const values = Object.entries(variables).map(([key, { name, schema }]) => {
    const value: unknown = (env as Readonly<Record<string, unknown>>)[name];
    // An empty variable counts as unset. workerd gives null for a variable that its environment lacks
    // (scripts/compile.ts).
    const read = schema.safeParse(value === "" || value === null ? undefined : value);
    if (read.success) return [key, read.data];
    for (const { place, expected } of faultsOf(read.error)) mistakes.push([name, expected, place]);
    return [key, schema.parse(undefined)];
  });
  return Object.fromEntries(values) as ValuesOf<Any>;
}

/** A fault of a value: where it is within the value, such as `'chat.to[0].weight': `, and what is expected there. */
interface Fault {
  place: string;
  expected: string;
}

/** All faults of a value. A place names fields and keys, and neither has the value itself. */
export function faultsOf({ issues }: Pick<z.ZodError, "issues">, outer: readonly PropertyKey[] = []): Fault[] {
  return issues.flatMap((issue) => {
    const path = [...outer, ...issue.path];
    if (issue.code === "invalid_union" && issue.message === UNION_MESSAGE) {
      // A value has one of several forms: the one in which it goes wrong only within.
      const isOther = ({ code, path: { length } }: z.core.$ZodIssue) => code === "invalid_type" && length === 0;
      const meant = issue.errors.find((form) => !form.some(isOther));
      if (meant) return faultsOf({ issues: meant }, path);
    }
    if (issue.code === "unrecognized_keys") {
      return issue.keys.map((key) => ({ place: placed([...path, key]), expected: "unknown field" }));
    }
    const { message } = issue.code === "invalid_key" ? (issue.issues[0] ?? issue) : issue;
    return [{ place: placed(path), expected: message }];
  });
}

/** zod's message about a union without one of its own. */
const UNION_MESSAGE = "Invalid input";

function placed(path: readonly PropertyKey[]): string {
  return path.length === 0 ? "" : `'${formatPath(path)}': `;
}
