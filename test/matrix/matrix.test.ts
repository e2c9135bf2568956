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

/** Each way, with the function that has all capabilities used in it. */
const WAYS: Record<string, () => Promise<Uses>> = {
  "one worker, reloaded in the middle": async () => {
    const served = await start(variablesOf(1, newFolder()));
    const uses = await useAt(served, false, () => reload(served, 1));
    await stop(served);
    return uses;
  },

  "three workers, reloaded in the middle": async () => {
    const served = await start(variablesOf(WORKERS, newFolder()));
    const uses = await useAt(served, false, () => reload(served, WORKERS));
    await stop(served);
    return uses;
  },

  "three workers, each killed in the middle": async () => {
    const served = await start(variablesOf(WORKERS, newFolder()));
    const uses = await useAt(served, true, (uses) => killEach(served, uses));
    await stop(served);
    return uses;
  },

  "three workers, one killed during a reload": async () => {
    const served = await start(variablesOf(WORKERS, newFolder()));
    const uses = await useAt(served, true, async (uses) => {
      served.child.kill("SIGHUP");
      await eventually(() => served.output().includes("Another process serves"));
      await uses.begin();
      const [first] = workerdsOf(served);
      if (first) process.kill(first, "SIGKILL");
      await eventually(() => workerdsOf(served).length >= WORKERS && !workerdsOf(served).includes(first ?? 0));
    });
    await stop(served);
    return uses;
  },

  "two workers, from a backup of three": async () => {
    const [folder, backup, restored] = [newFolder(), join(newFolder(), "backup"), join(newFolder(), "state")];
    const served = await start(variablesOf(WORKERS, folder));
    const { port } = new URL(served.url);
    const uses = await useAt(served, false);
    await command(variablesOf(WORKERS, folder), "backup", backup);
    await stop(served);
    await command(variablesOf(2, restored), "restore", backup);
    // The same address, so that the checks find it.
    const other = await start({ ...variablesOf(2, restored), PORT: port });
    await uses.check();
    await stop(other);
    return uses;
  },
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
    results = (await WAYS[way]?.())?.results;
  }, USES_MS);

  it.each(Object.keys(CAPABILITIES))("%s is stored once, and found", (name) => {
    const result = results?.get(name);
    if (result?.failure) throw result.failure;
    expect(result?.uses).toBeGreaterThan(0);
  });
});
