import { readFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** The addresses of a service of Kubernetes: its EndpointSlices, listed once and then watched. */

/** An address behind a name. */
export interface Endpoint {
  address: string;
  /** If undefined, the URL's port applies. */
  port?: number | undefined;
  /** The pod's name, which a pod of a StatefulSet keeps when its address changes. */
  name?: string | undefined;
  /** The pod is being stopped, and still answers its requests. */
  isDraining?: boolean | undefined;
}

/** The access of a pod's service account to the API server. */
export interface KubernetesApi {
  url: string;
  namespace: string;
  /** Read for each request, because Kubernetes replaces it. */
  token: () => string;
  /** Certificates, as PEM. */
  authority: string;
}

/** The folder in which Kubernetes mounts a service account. */
const ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount";

/** The API of the cluster that runs this process. Undefined outside of a cluster, or without a service account. */
export function inCluster(): KubernetesApi | undefined {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port = "443" } = process.env;
  if (!host) return undefined;
  try {
    const read = (name: string) => readFileSync(join(ACCOUNT, name), "utf8").trim();
    const at = host.includes(":") ? `[${host}]` : host;
    return {
      url: `https://${at}:${port}`,
      namespace: read("namespace"),
      token: () => read("token"),
      authority: read("ca.crt"),
    };
  } catch {
    return undefined;
  }
}

/** The parts of an EndpointSlice that count here. */
interface Slice {
  metadata: { name: string; resourceVersion?: string };
  endpoints?:
    | {
        addresses: string[];
        conditions?: { ready?: boolean; serving?: boolean; terminating?: boolean };
        targetRef?: { kind?: string; name?: string };
      }[]
    | null;
  ports?: { name?: string; port?: number }[] | null;
}

/** The maximum size of a list, or of a line of a watch, for a model server's service. Bytes. */
const MAX_BYTES = 4 * 1024 * 1024;

/** The API server ends a watch after this time, and the next one begins. Seconds. */
const WATCH_S = 300;

/** The wait before the API is asked again after a failure: at first, and at most. Milliseconds. */
const [RETRY_MS, MAX_RETRY_MS] = [1_000, 30_000];

const MAX_ENDPOINTS = 64;

interface Watched {
  /** `SERVICE`, `SERVICE.NAMESPACE` or `SERVICE.NAMESPACE.svc…`. */
  host: string;
  /** The URL's port: either it is a port of the slice, or the service has only one port. */
  port: number;
  api: KubernetesApi | undefined;
}

/** Watches the endpoints of a service until it is disposed of. Calls `onChange` when they have changed. */
export function watchEndpoints({ host, port, api }: Watched, onChange: () => void, tell: (message: string) => void) {
  const first = Promise.withResolvers<void>();
  const stopping = new AbortController();
  const slices = new Map<string, Slice>();
  let endpoints: readonly Endpoint[] = [];
  const settle = () => {
    const found = endpointsOf(slices.values(), port);
    const isNews = JSON.stringify(found) !== JSON.stringify(endpoints);
    endpoints = found;
    if (isNews) onChange();
  };
  if (!api) {
    tell(`The endpoints of ${host} are unknown: this process has no service account of a Kubernetes cluster.`);
    first.resolve();
  } else {
    const [service = host, namespace = api.namespace] = host.split(".");
    const path = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices?labelSelector=${encodeURIComponent(`kubernetes.io/service-name=${service}`)}`;
    void run(api, path);
  }
  return {
    first: first.promise,
    endpoints: () => endpoints,
    [Symbol.dispose]: () => stopping.abort(),
  };

  async function run(api: KubernetesApi, path: string): Promise<void> {
    let retryMs = RETRY_MS;
    let isTold = false;
    while (!stopping.signal.aborted) {
      try {
        let version = await list(api, path);
        first.resolve();
        isTold = false;
        retryMs = RETRY_MS;
        // A watch that ends in order resumes where it ended; any other watch begins with a new list.
        while (!stopping.signal.aborted) version = await watch(api, path, version);
      } catch (error) {
        if (stopping.signal.aborted) return;
        const why = error instanceof Error ? error.message : String(error);
        if (!isTold && why !== GONE) tell(`The endpoints of ${host} cannot be watched (${why}). The known ones stay.`);
        isTold ||= why !== GONE;
        first.resolve();
        await sleep(retryMs, undefined, { ref: false, signal: stopping.signal }).catch(() => {});
        retryMs = Math.min(MAX_RETRY_MS, retryMs * 2);
      }
    }
  }

  async function list(api: KubernetesApi, path: string): Promise<string> {
    let text = "";
    for await (const piece of await ask(api, path, stopping.signal)) {
      text += piece;
      if (text.length > MAX_BYTES) throw new Error("the list is too long");
    }
    const { items, metadata } = JSON.parse(text) as { items: Slice[]; metadata: { resourceVersion: string } };
    slices.clear();
    for (const slice of items) slices.set(slice.metadata.name, slice);
    settle();
    return metadata.resourceVersion;
  }

  /** Follows changes until the API server ends the watch. Gives the last version that the server has named. */
  async function watch(api: KubernetesApi, path: string, from: string): Promise<string> {
    let version = from;
    let rest = "";
    const query = `&watch=1&allowWatchBookmarks=true&timeoutSeconds=${WATCH_S}&resourceVersion=${encodeURIComponent(from)}`;
    for await (const piece of await ask(api, path + query, stopping.signal)) {
      const lines = (rest + piece).split("\n");
      rest = lines.pop() ?? "";
      if (rest.length > MAX_BYTES) throw new Error("a change is too long");
      for (const line of lines) {
        if (line === "") continue;
        const { type, object } = JSON.parse(line) as { type: string; object: Slice };
        // Usually 410: the version is too old.
        if (type === "ERROR") throw new Error(GONE);
        version = object.metadata.resourceVersion ?? version;
        if (type === "DELETED") slices.delete(object.metadata.name);
        else if (type !== "BOOKMARK") slices.set(object.metadata.name, object);
      }
      settle();
    }
    return version;
  }
}

/** The watch has to begin with a new list. */
const GONE = "the version is gone";

/**
 * The endpoints of slices: those that take requests, each address once, and those that still answer their last ones.
 */
function endpointsOf(slices: Iterable<Slice>, wanted: number): Endpoint[] {
  const found = new Map<string, Endpoint>();
  for (const { endpoints, ports } of slices) {
    const port = ports?.find((each) => each.port === wanted)?.port ?? ports?.[0]?.port;
    for (const { addresses, conditions = {}, targetRef } of endpoints ?? []) {
      const isDraining = conditions.terminating === true && conditions.serving !== false;
      const [address] = addresses;
      if (address === undefined || (conditions.ready === false && !isDraining)) continue;
      found.set(address, { address, port, name: targetRef?.kind === "Pod" ? targetRef.name : undefined, isDraining });
    }
  }
  return [...found.values()].toSorted((one, other) => (one.address < other.address ? -1 : 1)).slice(0, MAX_ENDPOINTS);
}

/** Asks the API server. Rejects if the status is not 200, or if it is silent for longer than a watch lasts. */
async function ask(
  { url, token, authority }: KubernetesApi,
  path: string,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const headers = { authorization: `Bearer ${token()}`, accept: "application/json" };
  const asked = request(url + path, { ca: authority, headers, signal, timeout: (WATCH_S + 30) * 1_000 });
  asked.on("timeout", () => asked.destroy(new Error("no answer")));
  asked.on("error", reject);
  asked.on("response", (answer) => {
    if (answer.statusCode === 200) return resolve(answer.setEncoding("utf8"));
    answer.resume();
    reject(new Error(answer.statusCode === 410 ? GONE : `status ${answer.statusCode}`));
  });
  asked.end();
  return promise;
}
