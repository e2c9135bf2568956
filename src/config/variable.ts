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

/** A variable at fault, and the value that is expected. The text never contains the variable's value. */
export type Mistake = readonly [name: string, expected: string];

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
    mistakes.push([name, read.error.issues[0]?.message ?? "not understood"]);
    return [key, schema.parse(undefined)];
  });
  return Object.fromEntries(values) as ValuesOf<Any>;
}
