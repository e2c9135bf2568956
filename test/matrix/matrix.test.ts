import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { OBJECTS } from "../../src/store/objects/registry.ts";
import { ADMIN_KEY, ROOT } from "../e2e/key-support.ts";
import { cleanUp, newFolder, run, type Served, start, workerdsOf } from "../e2e/serve-support.ts";
import { eventually } from "../e2e/support.ts";
import { fetchAnew } from "../workerd/tools.ts";
import { CAPABILITIES, type Check, type Tenant } from "./capabilities.ts";

/**
 * Every capability that stores something, and every way in which its object may be elsewhere: in this worker or in
 * another one, in a process that has died, in the process before or after this one, or in another number of workers.
 */

const WORKERS = 3;

/** A use, or a check, that takes longer hangs. Milliseconds. */
const HANGS_MS = 120_000;

/** A way has several uses, and their checks. Milliseconds. */
const WAY_MS = 480_000;

/**
 * The first pause between two uses of a capability, and its growth: the quick ones leave time to the others, and a slow machine
 * has no more uses than a fast one. Milliseconds.
 */
const PAUSE_MS = 300;
const PAUSE_GROWTH = 1.1;

let vllm: SimulatorServer;
let hooks: Server;
/** The ids of the received events, by their response. */
const events = new Map<string, Set<string>>();
beforeAll(async () => {
  vllm = await serveSimulator();
  hooks = createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    const { id, data } = JSON.parse(body) as { id: string; data: { id: string } };
    events.set(data.id, (events.get(data.id) ?? new Set()).add(id));
    response.end();
  }).listen(0, "127.0.0.1");
  await once(hooks, "listening");
});
afterAll(async () => {
  cleanUp();
  hooks.close();
  await vllm.close();
});

const hookUrl = () => `http://127.0.0.1:${(hooks.address() as AddressInfo).port}/`;

const variablesOf = (workers: number, folder: string) => ({
  ...{ VLLM_BASE_URL: `${vllm.url}/v1`, ADMIN_KEY, KEY_CACHE_MS: "100" },
  ...{ WEBHOOK_URLS: hookUrl(), ALLOW_PRIVATE_WEBHOOKS: "true" },
  ...{ STATE_DIRECTORY: folder, WORKERS: String(workers), STOP_TIMEOUT_MS: "10000" },
});

/**
 * `fetch` on a new connection, so that any worker may answer. A lost connection is asked again, as OpenAI's clients do; that a reload
 * loses none is a fact of its own (hand-over.test.ts). Where workers die it also asks again after an error of the server.
 */
const fetchWith =
  (hasDeaths: boolean): typeof fetch =>
  async (input, init) => {
    for (const deadline = Date.now() + 60_000; ; await sleep(100)) {
      const isLast = Date.now() > deadline;
      try {
        const answer = await fetchAnew(input, init);
        // The object's worker has died, and starts again.
        if (isLast || !hasDeaths || answer.status < 500) return answer;
        await answer.body?.cancel();
      } catch (error) {
        if (isLast) throw error;
      }
    }
  };

async function tenantAt({ url }: Served, hasDeaths: boolean, limits: object): Promise<Tenant> {
  const fetch = fetchWith(hasDeaths);
  const admin: Tenant["admin"] = async (method, path, body) => {
    const headers = { authorization: `Bearer ${ROOT}`, "content-type": "application/json" };
    const answer = await fetch(url + path, { method, headers, ...(body && { body: JSON.stringify(body) }) });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text;
  };
  const name = `tenant-${randomUUID()}`;
  await admin("POST", `/v1/admin/tenants/${name}`, { limits });
  const { value: key } = JSON.parse(await admin("POST", "/v1/admin/keys", { tenant: name })) as { value: string };
  const openai = new OpenAI({ apiKey: key, baseURL: `${url}/v1`, maxRetries: 0, fetch });
  return {
    ...{ url, name, key, openai, admin, hasDeaths },
    hook: { url: hookUrl(), events },
    fetch: (path, init) =>
      fetch(url + path, { ...init, headers: { authorization: `Bearer ${key}`, ...init?.headers } }),
  };
}

/** What a capability has come to: its uses, the checks of what it has stored, and the first failure. */
interface Result {
  uses: number;
  checks: Check[];
  failure: unknown;
}

/** Waits until each capability was used once more, or has failed. */
type UsedAgain = () => Promise<void>;

/** Uses all capabilities at a server, again and again: before, during and after what `happens`. Then checks all that they have stored. */
async function useAt(
  served: Served,
  hasDeaths: boolean,
  happens: (usedAgain: UsedAgain) => Promise<void>,
): Promise<Map<string, Result>> {
  const results = new Map(Object.keys(CAPABILITIES).map((name): [string, Result] => [name, newResult()]));
  const all = [...results.values()];
  let isOver = false;
  const using = Object.entries(CAPABILITIES).map(async ([name, { use, limits = {} }]) => {
    const result = results.get(name) ?? newResult();
    try {
      const tenant = await tenantAt(served, hasDeaths, limits);
      for (let isLast = false, pause = PAUSE_MS; !isLast; pause *= PAUSE_GROWTH) {
        isLast = isOver;
        result.checks.push(await inTime(use(tenant, `${name} ${randomUUID()}`)));
        result.uses += 1;
        for (const end = Date.now() + pause; !isOver && Date.now() < end; ) await sleep(50);
      }
    } catch (error) {
      result.failure = error;
    }
  });
  const usedAgain = async () => {
    const before = all.map(({ uses }) => uses);
    // Each use ends, or fails, in time.
    await eventually(() => all.every(({ uses, failure }, index) => failure || uses > (before[index] ?? 0)), WAY_MS);
  };
  await usedAgain();
  await happens(usedAgain);
  isOver = true;
  await Promise.all(using);
  await checkAll(results);
  return results;
}

/** What a use or a check gives; an error if it hangs. */
async function inTime<T>(work: Promise<T>): Promise<T> {
  const end = new AbortController();
  const late = sleep(HANGS_MS, undefined, end).then(() => Promise.reject(new Error(`It hangs: ${HANGS_MS} ms.`)));
  try {
    return await Promise.race([work, late]);
  } finally {
    end.abort();
    late.catch(() => {});
  }
}

const newResult = (): Result => ({ uses: 0, checks: [], failure: undefined });

/** Checks again what each capability has stored. */
async function checkAll(results: ReadonlyMap<string, Result>): Promise<void> {
  await Promise.all(
    [...results.values()].map(async (result) => {
      try {
        for (const check of result.checks) await inTime(check());
      } catch (error) {
        result.failure ??= error;
      }
    }),
  );
}

/** Reloads a server, and waits until each of its workers was replaced. */
async function reload(served: Served, workers: number): Promise<void> {
  const count = () => served.output().split("Another process serves").length - 1;
  const before = count();
  served.child.kill("SIGHUP");
  await eventually(() => count() === before + workers);
}

/** Kills one worker after another, each in the middle of other uses. */
async function killEach(served: Served, usedAgain: UsedAgain): Promise<void> {
  for (const pid of workerdsOf(served)) {
    process.kill(pid, "SIGKILL");
    await eventually(() => workerdsOf(served).length === WORKERS && !workerdsOf(served).includes(pid));
    await usedAgain();
  }
}

/** Each way, with the function that has all capabilities used in it. */
const WAYS: Record<string, () => Promise<Map<string, Result>>> = {
  "one worker, reloaded in the middle": async () => {
    const served = await start(variablesOf(1, newFolder()));
    const results = await useAt(served, false, () => reload(served, 1));
    await stop(served);
    return results;
  },

  "three workers, reloaded in the middle": async () => {
    const served = await start(variablesOf(WORKERS, newFolder()));
    const results = await useAt(served, false, () => reload(served, WORKERS));
    await stop(served);
    return results;
  },

  "three workers, each killed in the middle": async () => {
    const served = await start(variablesOf(WORKERS, newFolder()));
    const results = await useAt(served, true, (usedAgain) => killEach(served, usedAgain));
    await stop(served);
    return results;
  },

  "three workers, one killed during a reload": async () => {
    const served = await start(variablesOf(WORKERS, newFolder()));
    const results = await useAt(served, true, async () => {
      served.child.kill("SIGHUP");
      await eventually(() => served.output().includes("Another process serves"));
      const [first] = workerdsOf(served);
      if (first) process.kill(first, "SIGKILL");
      await eventually(() => workerdsOf(served).length >= WORKERS && !workerdsOf(served).includes(first ?? 0));
    });
    await stop(served);
    return results;
  },

  "two workers, from a backup of three": async () => {
    const [folder, backup, restored] = [newFolder(), join(newFolder(), "backup"), join(newFolder(), "state")];
    const served = await start(variablesOf(WORKERS, folder));
    const { port } = new URL(served.url);
    const results = await useAt(served, false, async () => {});
    await command(variablesOf(WORKERS, folder), "backup", backup);
    await stop(served);
    await command(variablesOf(2, restored), "restore", backup);
    // The same address, so that the checks find it.
    const other = await start({ ...variablesOf(2, restored), PORT: port });
    await checkAll(results);
    await stop(other);
    return results;
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
  let results: Map<string, Result> | undefined;
  beforeAll(async () => {
    results = await WAYS[way]?.();
  }, WAY_MS);

  it.each(Object.keys(CAPABILITIES))("%s is stored once, and found", (name) => {
    const { failure, uses } = results?.get(name) ?? newResult();
    if (failure) throw failure;
    expect(uses).toBeGreaterThan(0);
  });
});
