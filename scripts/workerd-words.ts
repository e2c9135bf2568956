import { createInterface } from "node:readline";
import type { Readable } from "node:stream";

/**
 * What workerd says of itself, a line each, without the stacks of its own code. It prints one for what is no fault of
 * its own, such as a host name that nobody knows.
 */
export async function sayPlainly(output: Readable, say: (line: string) => void): Promise<void> {
  for await (const line of createInterface({ input: output, crlfDelay: Number.POSITIVE_INFINITY })) {
    const plain = plainly(line);
    if (plain !== undefined) say(plain);
  }
}

/** A line as people are to see it; undefined for a stack. */
export function plainly(line: string): string | undefined {
  if (line.startsWith("stack: ")) return undefined;
  const [, said] = /^\S+\.c\+\+:\d+: \w+: (?:e = )?(?:\S+:\d+: failed: )?(.*)$/.exec(line) ?? [];
  return said === undefined ? line : `workerd: ${said}`;
}
