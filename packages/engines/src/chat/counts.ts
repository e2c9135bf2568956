import type { Dialect } from "../dialects/dialect.ts";

/** The count of a prompt's tokens by its model server. */

/** The path that counts, below `/v1` or from the server's root. */
export function countPath(counting: NonNullable<Dialect["counting"]>): string {
  return counting === "input_tokens" ? "/chat/completions/input_tokens" : "//tokenize";
}

/** The count in an answer: vLLM's `count`, or llama.cpp's `input_tokens`. Undefined without one. */
export function countIn(answer: unknown): number | undefined {
  const { count, input_tokens: tokens = count } = (answer ?? {}) as Readonly<Record<string, unknown>>;
  return typeof tokens === "number" ? tokens : undefined;
}
