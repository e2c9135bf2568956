import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { OBJECTS } from "../../src/store/objects/registry.ts";
import { cleanUp, newFolder, reload, run, type Served, start, workerdsOf } from "../e2e/serve-support.ts";
import { eventually } from "../e2e/support.ts";
import { CAPABILITIES } from "./capabilities.ts";
import { type Hooks, receiveHooks, USES_MS, Uses, variablesFor } from "./uses.ts";

/**
 * Every capability that stores something, and every way in which its object may be elsewhere: in this worker or in
 * another one, in a process that has died, in the process before or after this one, or in another number of workers.
 */

const WORKERS = 3;

let vllm: SimulatorServer;
let hooks: Hooks;
beforeAll(async () => {
  vllm = await serveSimulator();
  hooks = await receiveHooks();
});
afterAll(async () => {
  cleanUp();
  await hooks.close();
  await vllm.close();
});

const variablesOf = (workers: number, folder: string) => ({
  ...variablesFor(vllm.url, hooks),
  ...{ STATE_DIRECTORY: folder, WORKERS: String(workers), STOP_TIMEOUT_MS: "10000" },
});

/** Uses all capabilities at a server: before, during and after what `happens`, which begins in the middle of uses. */
async function useAt(
  { url }: Served,
  hasDeaths: boolean,
  happens: (uses: Uses) => Promise<void> = async () => {},
): Promise<Uses> {
  const uses = new Uses({ url, hasDeaths }, hooks);
  await uses.usedAgain();
  await uses.begin();
  await happens(uses);
  await uses.finish();
  return uses;
}

/** Kills one worker after another, each in the middle of other uses. */
async function killEach(served: Served, uses: Uses): Promise<void> {
  for (const pid of workerdsOf(served)) {
    await uses.begin();
    process.kill(pid, "SIGKILL");
    await eventually(() => workerdsOf(served).length === WORKERS && !workerdsOf(served).includes(pid));
    await uses.usedAgain();
  }
}

/** A copy of the results so far: a later check may add failures. */
const resultsOf = ({ results }: Uses): Uses["results"] =>
  new Map([...results].map(([name, result]) => [name, { ...result }]));

/** Two ways that follow each other: the second one goes on with what the first one leaves. */
function inTurn<Result>(work: () => Promise<[Result, Result]>): [() => Promise<Result>, () => Promise<Result>] {
  let begun: Promise<[Result, Result]> | undefined;
  const results = () => {
    begun ??= work();
    return begun;
  };
  return [async () => (await results())[0], async () => (await results())[1]];
}

/** Three workers that are reloaded; then two, from the backup of what these have stored. */
const [reloaded, restored] = inTurn(async () => {
  const [folder, backup, target] = [newFolder(), join(newFolder(), "backup"), join(newFolder(), "state")];
  const served = await start(variablesOf(WORKERS, folder));
  const { port } = new URL(served.url);
  const uses = await useAt(served, false, () => reload(served, WORKERS));
  const before = resultsOf(uses);
  await command(variablesOf(WORKERS, folder), "backup", backup);
  await stop(served);
  await command(variablesOf(2, target), "restore", backup);
  // The same address, so that the checks find it.
  const other = await start({ ...variablesOf(2, target), PORT: port });
  await uses.check();
  await stop(other);
  return [before, uses.results];
});

/** Three workers that are killed one after another; then one of them during a reload. */
const [killedEach, killedDuringReload] = inTurn(async () => {
  const served = await start(variablesOf(WORKERS, newFolder()));
  const each = await useAt(served, true, (uses) => killEach(served, uses));
  const duringReload = await useAt(served, true, (uses) => killDuringReload(served, uses));
  await stop(served);
  return [each.results, duringReload.results];
});

async function killDuringReload(served: Served, uses: Uses): Promise<void> {
  served.child.kill("SIGHUP");
  await eventually(() => served.output().includes("Another process serves"));
  await uses.begin();
  const [first] = workerdsOf(served);
  if (first) process.kill(first, "SIGKILL");
  await eventually(() => workerdsOf(served).length >= WORKERS && !workerdsOf(served).includes(first ?? 0));
}

/** Each way, with the function that has all capabilities used in it. */
const WAYS: Record<string, () => Promise<Uses["results"]>> = {
  "one worker, reloaded in the middle": async () => {
    const served = await start(variablesOf(1, newFolder()));
    const uses = await useAt(served, false, () => reload(served, 1));
    await stop(served);
    return uses.results;
  },
  "three workers, reloaded in the middle": reloaded,
  "three workers, each killed in the middle": killedEach,
  "three workers, one killed during a reload": killedDuringReload,
  "two workers, from a backup of three": restored,
};

async function stop(served: Served): Promise<void> {
  served.child.kill("SIGTERM");
  expect(await served.exited, served.output()).toBe(0);
}

/** Runs a command, which must succeed. */
async function command(variables: Record<string, string>, ...words: string[]): Promise<void> {
  const [code, output] = await run(variables, words);
  expect(code, output).toBe(0);
}

it("covers every class of objects", () => {
  const covered = new Set<string>(Object.values(CAPABILITIES).flatMap(({ stores }) => stores));
  expect([...covered].toSorted()).toEqual(Object.keys(OBJECTS).toSorted());
});

describe.each(Object.keys(WAYS))("%s", (way) => {
  let results: Uses["results"] | undefined;
  beforeAll(async () => {
    results = await WAYS[way]?.();
  }, 2 * USES_MS);

  it.each(Object.keys(CAPABILITIES))("%s is stored once, and found", (name) => {
    const result = results?.get(name);
    if (result?.failure) throw result.failure;
    expect(result?.uses).toBeGreaterThan(0);
  });
});
