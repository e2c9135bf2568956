import { conformantFetch } from "../conformance/client.ts";
import { startWorkerd } from "../workerd/process.ts";
import { fetchAnew } from "../workerd/tools.ts";
import { type HeldServer, startHeldServer } from "./held-server.ts";
import { ADMIN_KEY, makeKey, newTenant } from "./key-support.ts";
import { newFolder, type Served, start as startServe } from "./serve-support.ts";
import { eventually } from "./support.ts";

const TOKEN = "scrape-me";

async function startServers(count: number, fields: object): Promise<[HeldServer[], Record<string, string>]> {
  const tokens = (text: string) => Number(/TOKENS=(\d+)/.exec(text)?.[1] ?? 100);
  const servers = await Promise.all(Array.from({ length: count }, () => startHeldServer(tokens)));
  const upstreams = servers.map(({ url }, index) => ({ name: `s${index}`, url, ...fields }));
  const settings = {
    UPSTREAMS: JSON.stringify(upstreams),
    HEARTBEAT_MS: "100",
    ...{ ADMIN_KEY, KEY_CACHE_MS: "100", PROMETHEUS_METRICS: "true", PROMETHEUS_TOKEN: TOKEN },
  };
  return [servers, settings];
}

/** A gateway in front of servers whose answers end when a test says so. */
export class Rig {
  readonly servers: HeldServer[];
  /** Undefined for a plain process. */
  readonly served: Served | undefined;
  readonly gateway: { url: string; close(): Promise<unknown> };
  readonly #fetch = conformantFetch(fetchAnew);
  readonly #pending = new Set<Promise<Response>>();

  constructor(servers: HeldServer[], gateway: Rig["gateway"], served?: Served) {
    this.servers = servers;
    this.gateway = gateway;
    this.served = served;
  }

  /** A gateway of one process. `fields`: those of each server's entry. */
  static async start(count: number, fields: object, variables: Record<string, string> = {}): Promise<Rig> {
    const [servers, settings] = await startServers(count, fields);
    return new Rig(servers, await startWorkerd({ ...settings, ...variables }, { readsFormats: false }));
  }

  /** `serve`, with its launcher. */
  static async serve(count: number, fields: object, variables: Record<string, string>): Promise<Rig> {
    const [servers, settings] = await startServers(count, fields);
    const served = await startServe({ ...settings, STATE_DIRECTORY: newFolder(), ...variables });
    const close = () => {
      served.child.kill("SIGTERM");
      return served.exited;
    };
    return new Rig(servers, { url: served.url, close }, served);
  }

  get server(): HeldServer {
    const [server] = this.servers;
    if (!server) throw new Error("A rig has a server.");
    return server;
  }

  get api() {
    return { url: this.gateway.url, fetch: this.#fetch };
  }

  async key(tenant = newTenant(), weight?: number): Promise<string> {
    return (await makeKey(this.api, tenant, weight === undefined ? undefined : { weight })).value;
  }

  send(key: string, input: string, more: object = {}, signal?: AbortSignal): Promise<Response> {
    const answer = fetchAnew(`${this.gateway.url}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
      body: JSON.stringify({ model: "held", input, store: false, ...more }),
      ...(signal && { signal }),
    });
    this.#pending.add(answer);
    answer.catch(() => {}).finally(() => this.#pending.delete(answer));
    return answer;
  }

  /** Sends requests one after another, each once the earlier ones run or wait. */
  async sendAll(key: string, inputs: readonly string[], more: object = {}): Promise<void> {
    for (const input of inputs) {
      const before = await this.known();
      void this.send(key, input, more);
      await eventually(async () => (await this.known()) > before);
    }
  }

  /** Requests that run and wait. */
  async known(): Promise<number> {
    return (await this.waiting()) + this.servers.reduce((sum, { asked }) => sum + asked.length, 0);
  }

  /** The gauge of waiting requests, of all servers. */
  async waiting(): Promise<number> {
    const values = [...(await this.metrics()).matchAll(/^responses_edge_upstream_waiting\{.*\} (\d+)/gm)];
    return values.reduce((sum, [, value]) => sum + Number(value), 0);
  }

  /** The text of `/metrics`, of all workers. */
  async metrics(): Promise<string> {
    return (await fetch(`${this.gateway.url}/metrics`, { headers: { authorization: `Bearer ${TOKEN}` } })).text();
  }

  /** Lets all answers end, until no request is left. */
  async drain(): Promise<void> {
    await eventually(() => {
      for (const { running } of this.servers) for (const { end } of running) end();
      return this.#pending.size === 0;
    });
    for (const server of this.servers) Object.assign(server, { asked: [], most: 0, takes: undefined, waiting: 0 });
  }

  async close(): Promise<void> {
    for (const server of this.servers) server.close();
    await this.gateway.close();
  }
}

export const numbered = (name: string, count: number) => Array.from({ length: count }, (_, index) => `${name}${index}`);

/** The texts without their numbers. */
export const senders = (texts: readonly string[]) => texts.map((text) => text.replace(/\d+.*$/, ""));
