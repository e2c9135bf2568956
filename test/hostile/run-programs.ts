import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { BoundedProcesses } from "../../cli/serve/bounded-processes.ts";
import { madeBundle } from "../../cli/serve/bundle.ts";
import { ENDLESS, FINE, stepIn } from "./bounded-steps.ts";

/**
 * `npm run endless-programs -- TEXT`: runs each program that never ends in the processes of `serve`, or those whose names have the
 * text, while another tenant runs programs. Prints how each has ended and when, and how long the other tenant's took. Exits with 1
 * if one has ended otherwise than by its bound, or the other tenant got another answer than its own.
 */

const PAUSE_MS = 20;

const processes = await BoundedProcesses.start({ format: "text", say: () => {} });
processes.use(madeBundle() ?? "");
const faults: string[] = [];
const waits: number[] = [];
let isOver = false;
const other = (async () => {
  while (!isOver) {
    const begun = performance.now();
    const step = await stepIn(processes, "other", FINE.code, FINE.results);
    if (!isDeepStrictEqual(step, FINE.ended)) faults.push(`The other tenant got ${JSON.stringify(step)}.`);
    waits.push(performance.now() - begun);
    await sleep(PAUSE_MS);
  }
})();
for (const [what, code, passed] of ENDLESS.filter(([name]) => name.includes(process.argv[2] ?? ""))) {
  const begun = performance.now();
  const step = await stepIn(processes, "attacker", code);
  console.log(`${what}: ${JSON.stringify(step)} after ${Math.round(performance.now() - begun)} ms`);
  if (!isDeepStrictEqual(step, { passed })) faults.push(`${what} has not ended by ${passed}.`);
}
isOver = true;
await other;
await processes[Symbol.asyncDispose]();
const sorted = waits.toSorted((a, b) => a - b);
const at = (share: number) => Math.round(sorted[Math.floor(share * (sorted.length - 1))] ?? 0);
console.log(
  `The other tenant's ${waits.length} steps took ${at(0.5)} ms (median), ${at(0.99)} ms (p99), ${at(1)} ms (longest).`,
);
for (const fault of faults) console.error(fault);
process.exit(faults.length > 0 ? 1 : 0);
