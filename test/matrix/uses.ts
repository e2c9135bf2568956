import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI from "openai";
import { startToolServer, type ToolServer } from "../../dev/tool-server/server.ts";
import { ADMIN_KEY, ROOT } from "../e2e/key-support.ts";
import { eventually } from "../e2e/support.ts";
import { KEY } from "../tool-server/support.ts";
import { fetchAnew } from "../workerd/tools.ts";
import { CAPABILITIES, type Check, type Tenant } from "./capabilities.ts";

/** All capabilities, each used again and again at one server, while something happens to it. */

/** A use, or a check, that takes longer hangs. Milliseconds. */
const HANGS_MS = 240_000;

/** All uses and checks end in this time, or hang. Milliseconds. */
export const USES_MS = 480_000;

/**
 * The first pause between two uses of a capability that nobody asks for, and its growth: the quick ones leave time to the others, and a slow
 * machine has hardly more uses than a fast one. A tenant may have 50 webhook endpoints: as many uses take longer than `USES_MS`. Milliseconds.
 */
const PAUSE_MS = 1_500;
const PAUSE_GROWTH = 1.5;

/** The time in which uses that have begun send requests. Milliseconds. */
const BEGINNING_MS = 50;

/** The receiver of the tenants' webhooks, the ids of the events that have come, by their response, and a tool server. */
export interface Hooks {
  url: string;
  events: ReadonlyMap<string, ReadonlySet<string>>;
  /** Where programs run. */
  tools: ToolServer;
  close(): Promise<void>;
}

export async function receiveHooks(): Promise<Hooks> {
  const events = new Map<string, Set<string>>();
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    const { id, data } = JSON.parse(body) as { id: string; data: { id: string } };
    events.set(data.id, (events.get(data.id) ?? new Set()).add(id));
    response.end();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const tools = await startToolServer({ apiKey: KEY });
  const close = async () => {
    server.close();
    await tools.close();
  };
  return { url: `http://127.0.0.1:${port}/`, events, tools, close };
}

/** The variables that a server needs for all capabilities. */
export const variablesFor = (modelUrl: string, hooks: Hooks) => ({
  ...{ TOOL_SERVERS: JSON.stringify({ python: hooks.tools.pythonUrl }), TOOL_SERVER_API_KEY: KEY },
  ...{ VLLM_BASE_URL: `${modelUrl}/v1`, ADMIN_KEY, KEY_CACHE_MS: "100" },
  ...{ WEBHOOK_URLS: hooks.url, ALLOW_PRIVATE_WEBHOOKS: "true" },
});

/** A server, and whether its processes may die. */
export interface UsedServer {
  url: string;
  hasDeaths: boolean;
}

/** What a capability has come to: its uses, the checks of what it has stored, and the first failure. */
export interface Result {
  uses: number;
  checks: Check[];
  failure: unknown;
}

export class Uses {
  readonly results = new Map(
    Object.keys(CAPABILITIES).map((name): [string, Result] => [name, { uses: 0, checks: [], failure: undefined }]),
  );
  readonly #ended: Promise<unknown>;
  readonly #waiting = new Set<() => void>();
  #isOver = false;

  /** Begins to use all capabilities, each as a tenant of its own. */
  constructor(server: UsedServer, hooks: Hooks) {
    const using = Object.entries(CAPABILITIES).map(async ([name, { use, limits = {} }]) => {
      const result = this.#of(name);
      try {
        const tenant = await tenantAt(server, hooks, limits);
        for (let isLast = false, pause = PAUSE_MS; !isLast; pause *= PAUSE_GROWTH) {
          isLast = this.#isOver;
          result.checks.push(await inTime(use(tenant, `${name} ${randomUUID()}`)));
          result.uses += 1;
          if (!this.#isOver) await this.#asked(pause);
        }
      } catch (error) {
        result.failure = error;
      }
    });
    this.#ended = Promise.all(using);
  }

  /** Begins a use of each capability that waits for its next one. Resolves when these are in their middle. */
  async begin(): Promise<void> {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
    await sleep(BEGINNING_MS);
  }

  /** Waits until each capability was used once more, or has failed. */
  async usedAgain(): Promise<void> {
    const all = [...this.results.values()];
    const before = all.map(({ uses }) => uses);
    await this.begin();
    // Each use ends, or fails, in time.
    await eventually(() => all.every(({ uses, failure }, index) => failure || uses > (before[index] ?? 0)), USES_MS);
  }

  /** Uses each capability for a last time, and checks all that they have stored. */
  async finish(): Promise<void> {
    this.#isOver = true;
    await this.begin();
    await this.#ended;
    await this.check();
  }

  /** Checks again what each capability has stored: all of it, or its first `counts`. */
  async check(counts?: ReadonlyMap<string, number>): Promise<void> {
    await Promise.all(
      [...this.results].map(async ([name, result]) => {
        try {
          for (const check of result.checks.slice(0, counts?.get(name))) await inTime(check());
        } catch (error) {
          result.failure ??= error;
        }
      }),
    );
  }

  /** What each capability has stored so far. */
  get counts(): ReadonlyMap<string, number> {
    return new Map([...this.results].map(([name, { checks }]) => [name, checks.length]));
  }

  /** Each failure, with the capability's name. */
  get failures(): string[] {
    const failed = [...this.results].filter(([, { failure }]) => failure);
    return failed.map(([name, { failure }]) => `${name}: ${failure instanceof Error ? failure.stack : failure}`);
  }

  /** Waits until the next use is asked for, or for a time. */
  #asked(ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, ms);
    this.#waiting.add(() => {
      clearTimeout(timer);
      resolve();
    });
    return promise;
  }

  #of(name: string): Result {
    const result = this.results.get(name);
    if (!result) throw new TypeError(`There is no capability '${name}'.`);
    return result;
  }
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

/**
 * `fetch` on a new connection, so that any worker may answer. A lost connection is asked again, as OpenAI's clients do; that a reload
 * loses none is a fact of its own (hand-over.test.ts). Where processes die it also asks again after an error of the server, and
 * after an answer that breaks off.
 */
const fetchFrom =
  (server: UsedServer): typeof fetch =>
  async (input, init) => {
    for (const deadline = Date.now() + 60_000; ; await sleep(100)) {
      const isLast = Date.now() > deadline;
      try {
        const answer = await fetchAnew(input, init);
        // The object's process has died, and starts again.
        if (isLast || !server.hasDeaths || answer.status < 500)
          return await (server.hasDeaths ? whole(answer) : answer);
        await answer.body?.cancel();
      } catch (error) {
        if (isLast) throw error;
      }
    }
  };

/** The same answer after all of it has come, unless it is a stream of events. Throws if it breaks off. */
async function whole(answer: Response): Promise<Response> {
  const isStream = answer.headers.get("content-type")?.startsWith("text/event-stream");
  return isStream || !answer.body ? answer : new Response(await answer.arrayBuffer(), answer);
}

async function tenantAt(server: UsedServer, hook: Hooks, limits: object): Promise<Tenant> {
  const { url } = server;
  const fetch = fetchFrom(server);
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
    ...{ url, name, key, openai, admin, hook, server },
    fetch: (path, init) =>
      fetch(url + path, { ...init, headers: { authorization: `Bearer ${key}`, ...init?.headers } }),
  };
}
