import { readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { BoundedProcesses } from "../../cli/serve/bounded-processes.ts";
import { madeBundle } from "../../cli/serve/bundle.ts";
import { BOUNDS } from "../../cli/serve/process-bounds.ts";
import { commandOf } from "../e2e/serve-support.ts";
import { eventually } from "../e2e/support.ts";
import { ENDLESS, FINE, stepIn } from "./bounded-steps.ts";

/**
 * Programs that keep their process busy for ever, or fill its memory: each costs its owner that program, and nobody else
 * anything (`cli/serve/bounded-processes.ts`). Tests order events; none looks at the clock.
 */

/** Told lines. */
const log: string[] = [];
let processes: BoundedProcesses;
beforeAll(async () => {
  // So that little of the machine's time goes into loops.
  const bounds = { ...BOUNDS, program: { ...BOUNDS.program, cpuMs: 500, silentCpuMs: 500 } };
  processes = await BoundedProcesses.start({ format: "json", say: (line) => log.push(line) }, bounds);
  processes.use(madeBundle() ?? "");
});
afterAll(() => processes[Symbol.asyncDispose]());

const fine = () => stepIn(processes, "other", FINE.code, FINE.results);

const folder = () => processes.path.replace(/tasks$/, "");

/** The processes that do tasks. */
const pids = () =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && commandOf(name).includes(`${folder()}bounded-`))
    .map(Number);

/** The sockets of a process, as Linux lists them: the one on which it listens, and one for each connection. */
function socketsOf(pid: number): number {
  const [name = ""] = /bounded-\d+/.exec(commandOf(pid)) ?? [];
  return readFileSync("/proc/net/unix", "utf8").split(`${folder()}${name}.socket`).length - 1;
}

/** The first ones: the others cost the machine much time (`npm run endless-programs`). */
const FEW = ENDLESS.slice(0, 5);

describe("a program that never ends", () => {
  it("is ended by its bound, and meanwhile another tenant's programs are run", async () => {
    const attacks = FEW.map(async ([what, code, passed], index) => {
      expect(await stepIn(processes, `attacker-${index}`, code), what).toEqual({ passed });
    });
    // An attacker has no more than its turns.
    const waits = stepIn(processes, "attacker-0", FINE.code, FINE.results);
    for (let turn = 0; turn < 3; turn += 1) expect(await fine()).toEqual(FINE.ended);
    await Promise.all(attacks);
    expect(await waits).toEqual(FINE.ended);
    const ends = log.filter((line) => line.includes('"event":"bounded_process_ended","task":"program"'));
    expect(ends).toHaveLength(FEW.length);
  });
});

describe("a process that runs programs", () => {
  it("dies in the middle, which its Worker is told, and the next one runs the program", async () => {
    expect(await fine()).toEqual(FINE.ended);
    await eventually(() => pids().every((pid) => socketsOf(pid) === 1));
    const stopped = pids();
    expect(stopped.length).toBeGreaterThan(0);
    for (const pid of stopped) process.kill(pid, "SIGSTOP");
    const cut = fine();
    const taken = await eventually(() => stopped.find((pid) => socketsOf(pid) > 1));
    process.kill(taken, "SIGKILL");
    for (const pid of stopped) if (pid !== taken) process.kill(pid, "SIGCONT");
    expect(await cut).toEqual({ died: true });
    expect(await fine()).toEqual(FINE.ended);
  });

  it("has no variables", () => {
    expect(pids()).not.toEqual([]);
    for (const pid of pids()) expect(readFileSync(`/proc/${pid}/environ`, "utf8")).toBe("");
  });
});
