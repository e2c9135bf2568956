import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { buffer } from "node:stream/consumers";
import type { BoundedProcesses } from "../../cli/serve/bounded-processes.ts";
import { headerOf, type LastLine, TASK_HEADER } from "../../src/contract/bounded-tasks.ts";

/** Runs a step of a program in a bounded process, as a Worker does. Gives the step, or the last line if there is none. */
export async function stepIn(
  { path: socketPath }: BoundedProcesses,
  tenant: string,
  code: string,
  results: readonly object[] = [],
): Promise<object | LastLine | undefined> {
  const headers = { [TASK_HEADER]: headerOf({ type: "program", tenant }) };
  const asked = request({ socketPath, method: "POST", agent: false, headers });
  asked.end(JSON.stringify({ code, tools: ["stock"], seed: "1", startedAt: 0, results }));
  const [answer] = (await once(asked, "response")) as [IncomingMessage];
  const lines = (await buffer(answer)).toString().trim().split("\n");
  const [first, last] = lines.map((line) => JSON.parse(line) as LastLine | { step: string });
  if (!(first && "step" in first)) return first;
  if (!(last && "end" in last)) throw new Error("The step has no end.");
  return JSON.parse(first.step) as object;
}

/** A program that calls a tool, the result of this call, and its end. */
export const FINE = {
  code: "const { units } = await tools.stock({ sku: 'a' }); return units + 1;",
  results: [{ sequence: 0, output: { units: 5 } }],
  ended: { type: "ended", status: "completed", output: "6" },
} as const;

/** Programs that never end, and the bound that ends them. `npm test` runs the first ones. */
export const ENDLESS: readonly [what: string, code: string, bound: "time" | "memory"][] = [
  ["a loop", "for (;;);", "time"],
  ["a loop of microtasks", "for (;;) await null;", "time"],
  ["arguments without end", "tools.stock(new Proxy({}, { ownKeys() { for (;;); } }));", "time"],
  ["an error that is never described", "throw { get stack() { for (;;); }, toJSON() { for (;;); } };", "time"],
  ["buffers", "const all = []; for (;;) all.push(new Uint8Array(5e7).fill(7));", "memory"],
  ["a loop of timers", "setInterval(() => {}); await new Promise(() => {});", "time"],
  [
    "a loop beside a value that it returns",
    "queueMicrotask(function again() { queueMicrotask(again); }); return 1;",
    "time",
  ],
  ["a pattern", "/^(a+)+$/.test('a'.repeat(50) + 'b');", "time"],
  ["a number that grows", "let n = 3n; for (;;) n *= n;", "time"],
  ["a stack that is never written", "Error.prepareStackTrace = () => { for (;;); }; null.a;", "time"],
  ["refused calls", "for (;;) try { await tools.stock(1n); } catch {}", "time"],
  ["promises", "const again = () => Promise.resolve().then(again); await again();", "memory"],
  ["lists", "const all = []; for (;;) all.push(new Array(1e6).fill(1.5));", "memory"],
  [
    "texts",
    "const all = []; for (let text = 'x'.repeat(1e6); ; text += text.slice(1)) all.push(text.split(''));",
    "memory",
  ],
  ["a map", "const all = new Map(); for (let i = 0; ; i += 1) all.set(i, { i });", "memory"],
];
