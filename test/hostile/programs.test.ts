import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { type IncomingMessage, request } from "node:http";
import { buffer } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { BoundedProcesses } from "../../cli/serve/bounded-processes.ts";
import { madeBundle } from "../../cli/serve/bundle.ts";
import { BOUNDS } from "../../cli/serve/process-bounds.ts";
import { headerOf, type LastLine, TASK_HEADER } from "../../src/contract/bounded-tasks.ts";
import { commandOf } from "../e2e/serve-support.ts";
import { eventually } from "../e2e/support.ts";

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

const STOCK = { sequence: 0, output: { units: 5 } };

/** Runs a step of a program as a Worker does. Gives the step, or the last line if there is none. */
async function step(
  tenant: string,
  code: string,
  results: readonly object[] = [],
): Promise<object | LastLine | undefined> {
  const asked = request({
    ...{ socketPath: processes.path, method: "POST", agent: false },
    headers: { [TASK_HEADER]: headerOf({ type: "program", tenant }) },
  });
  asked.end(JSON.stringify({ code, tools: ["stock"], seed: "1", startedAt: 0, results }));
  const [answer] = (await once(asked, "response")) as [IncomingMessage];
  const lines = (await buffer(answer)).toString().trim().split("\n");
  const [first, last] = lines.map((line) => JSON.parse(line) as LastLine | { step: string });
  if (first && "step" in first) expect(last).toEqual({ end: true });
  return first && "step" in first ? (JSON.parse(first.step) as object) : first;
}

/** A program of another tenant. It calls a tool, and gets the result. */
const FINE = "const { units } = await tools.stock({ sku: 'a' }); return units + 1;";
const FINISHED = { type: "ended", status: "completed", output: "6" };

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

const ENDLESS: [what: string, code: string, bound: string][] = [
  ["a loop", "for (;;);", "time"],
  ["a loop of microtasks", "for (;;) await null;", "time"],
  ["a getter that reads its error for ever", "throw { get stack() { for (;;); }, toString() { for (;;); } };", "time"],
  ["arguments without end", "tools.stock(new Proxy({}, { ownKeys() { for (;;); } }));", "time"],
  ["buffers", "const all = []; for (;;) all.push(new Uint8Array(5e7).fill(7));", "memory"],
];

describe("a program that never ends", () => {
  it("is ended by its bound, and meanwhile another tenant's programs are run", async () => {
    const attacks = ENDLESS.map(async ([what, code, passed], index) => {
      expect(await step(`attacker-${index}`, code), what).toEqual({ passed });
    });
    // Of one tenant, too: its other programs wait.
    const waits = step("attacker-0", FINE, [STOCK]);
    for (let turn = 0; turn < 3; turn += 1) expect(await step("other", FINE, [STOCK])).toEqual(FINISHED);
    await Promise.all(attacks);
    expect(await waits).toEqual(FINISHED);
    const ends = log.filter((line) => line.includes('"event":"bounded_process_ended","task":"program"'));
    expect(ends).toHaveLength(ENDLESS.length);
  });
});

describe("a process that runs programs", () => {
  it("dies in the middle, which its Worker is told, and the next one runs the program", async () => {
    expect(await step("other", FINE, [STOCK])).toEqual(FINISHED);
    await eventually(() => pids().every((pid) => socketsOf(pid) === 1));
    const stopped = pids();
    expect(stopped.length).toBeGreaterThan(0);
    for (const pid of stopped) process.kill(pid, "SIGSTOP");
    const cut = step("other", FINE, [STOCK]);
    const taken = await eventually(() => stopped.find((pid) => socketsOf(pid) > 1));
    process.kill(taken, "SIGKILL");
    for (const pid of stopped) if (pid !== taken) process.kill(pid, "SIGCONT");
    expect(await cut).toEqual({ died: true });
    expect(await step("other", FINE, [STOCK])).toEqual(FINISHED);
  });

  it("has no variables", () => {
    expect(pids()).not.toEqual([]);
    for (const pid of pids()) expect(readFileSync(`/proc/${pid}/environ`, "utf8")).toBe("");
  });
});
