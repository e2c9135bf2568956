import type { SimulatorOptions } from "../../dev/simulator/handler.ts";
import { isObject } from "../../dev/simulator/json.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { descriptionOf } from "../conformance/api-description.ts";
import { startWorkerd } from "../workerd/process.ts";
import { freePort } from "../workerd/tools.ts";
import { type Gateway, gatewayAt } from "./support.ts";

/** A Worker in front of several simulated model servers, each with its own faults. */

export type Death = "kill" | "terminate" | "engine";

export interface Replica {
  name: string;
  /** The simulator's settings for requests that generate; "" is a healthy server. */
  trouble: string;
  /** The simulator's settings for `/health`. */
  illness: string;
  /** `http://HOST:PORT`, for requests that bypass the gateway. */
  readonly url: string;
  /** The requests that made it generate, or tried to. */
  readonly asked: SimulatorServer["simulator"]["requests"];
  /**
   * Lets it die: killed (connections break), told to stop (its streams fall silent), or without its engine (its streams
   * end with an error). Each closes its port.
   */
  die(death: Death): Promise<void>;
  /** Listens again on its port. Its earlier requests are forgotten. */
  restart(): Promise<void>;
}

export interface Fleet extends Gateway {
  replicas: readonly Replica[];
  /** The names of the servers that got a request for this model, or for any, each once. */
  servers(model?: string): string[];
  /** Forgets all requests, and makes all servers healthy. */
  clear(): void;
}

/** The options of a simulated server. */
type PlayedServer = Pick<SimulatorOptions, "models" | "adapters" | "ownedBy" | "kind" | "maxModelLen">;

export interface FleetOptions {
  /** Fields of UPSTREAMS and options of the simulator, by the server's name. */
  servers: Readonly<Record<string, { fields?: object } & PlayedServer>>;
  variables?: Record<string, string>;
}

export async function startFleet({ servers: described, variables = {} }: FleetOptions): Promise<Fleet> {
  const replicas = await Promise.all(Object.entries(described).map(([name, each]) => startReplica(name, each)));
  const entries = replicas.map(({ name, url }) => ({ name, url: `${url}/v1`, ...described[name]?.fields }));
  const worker = await startWorkerd(
    {
      UPSTREAMS: JSON.stringify(entries),
      ALLOW_ANONYMOUS: "true",
      SHOW_UPSTREAM: "true",
      HEARTBEAT_MS: "100",
      VLLM_SILENCE_MS: "100",
      ...variables,
    },
    { readsFormats: false },
  );
  const [first] = replicas;
  if (!first) throw new Error("A fleet has servers.");
  const gateway = gatewayAt(worker, first.server, await descriptionOf(worker.url));
  return {
    ...gateway,
    replicas,
    servers: (model) =>
      replicas
        .filter(({ asked }) =>
          asked.some(({ body }) => model === undefined || (isObject(body) && body.model === model)),
        )
        .map(({ name }) => name),
    clear() {
      for (const replica of replicas) {
        replica.trouble = "";
        replica.illness = "";
        replica.server.simulator.clear();
      }
    },
    async close() {
      await gateway.close();
      await Promise.all(replicas.map(({ server }) => server.close()));
    },
  };
}

async function startReplica(name: string, { models, adapters, ownedBy, kind, maxModelLen }: PlayedServer) {
  const replica = {
    name,
    trouble: "",
    illness: "",
    server: undefined as unknown as SimulatorServer,
    url: "",
    get asked() {
      return this.server.simulator.requests.filter(({ path }) => path.endsWith("/completions"));
    },
    async die(death: Death) {
      if (death === "terminate") await replica.server.terminate();
      else if (death === "engine") await replica.server.crashEngine();
      else await replica.server.close();
    },
    async restart() {
      await replica.server.close();
      replica.server = await serveSimulator({ ...options, port: Number(new URL(replica.url).port) });
    },
  };
  const options = {
    ...(models && { models }),
    ...(adapters && { adapters }),
    ...(ownedBy && { ownedBy }),
    ...(kind && { kind }),
    ...(maxModelLen !== undefined && { maxModelLen }),
    settings: (path: string) =>
      path.endsWith("/completions") ? replica.trouble : path === "/health" ? replica.illness : "",
  };
  replica.server = await serveSimulator({ ...options, port: await freePort() });
  replica.url = replica.server.url;
  return replica;
}
