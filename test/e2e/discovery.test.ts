import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { Discovery } from "../../cli/configuration/discovery.ts";
import { watchEndpoints } from "../../cli/configuration/kubernetes.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { certificate, cleanUp, newFolder, start } from "./serve-support.ts";
import { eventually } from "./support.ts";

/** Model servers behind one name: by DNS, and by the EndpointSlices of a Kubernetes cluster. */

afterEach(cleanUp);

describe("a resolved name", () => {
  let vllm: SimulatorServer;
  beforeAll(async () => {
    vllm = await serveSimulator();
  });
  afterAll(() => vllm.close());

  it("has a server for each of its addresses, to which requests go", async () => {
    const { port } = new URL(vllm.url);
    const entries = [{ name: "pool", url: `http://localhost:${port}/v1`, discover: "dns", weight: 2 }];
    const UPSTREAMS = JSON.stringify([...entries, { name: "gone", url: "http://127.0.0.1:1/v1", drain: true }]);
    const served = await start({ UPSTREAMS, ALLOW_ANONYMOUS: "true", STATE_DIRECTORY: newFolder() });
    const health = (await (await fetch(`${served.url}/health/upstream`)).json()) as { servers: { name: string }[] };
    expect(health.servers).toContainEqual(expect.objectContaining({ name: "pool-127-0-0-1", status: "ok", weight: 2 }));
    expect(health.servers.map(({ name }) => name)).not.toContain("pool");
    const headers = { "content-type": "application/json" };
    const answer = await fetch(`${served.url}/v1/responses`, { method: "POST", headers, body: '{"input":"Hello!"}' });
    expect(answer.status).toBe(200);
    served.child.kill("SIGTERM");
    expect(await served.exited).toBe(0);
  });

  it("has the name's secrets for each address; an unresolvable name stays one server", async () => {
    using discovery = new Discovery(
      () => {},
      () => {},
    );
    const entries = { nowhere: { url: "http://no-such-host.invalid/v1" }, here: { url: "http://localhost:8000/v1" } };
    const UPSTREAMS = JSON.stringify(
      Object.entries(entries).map(([name, { url }]) => ({ name, url, discover: "dns" })),
    );
    const UPSTREAM_SECRETS = JSON.stringify({ here: { api_key: "key" } });
    const expanded = await discovery.expand({ UPSTREAMS, UPSTREAM_SECRETS }, undefined);
    const servers = JSON.parse(expanded?.UPSTREAMS ?? "") as { name: string; url: string; api_key?: string }[];
    expect(servers).toContainEqual({ name: "nowhere", url: entries.nowhere.url });
    expect(servers).toContainEqual({ name: "here-127-0-0-1", url: "http://127.0.0.1:8000/v1", api_key: "key" });
    expect(expanded?.UPSTREAM_SECRETS).toBeUndefined();
    expect(await discovery.expand({ VLLM_BASE_URL: "http://a/v1" }, { HEARTBEAT_MS: "100" })).toEqual({
      HEARTBEAT_MS: "100",
    });
  });
});

/** A cluster's API server, with its EndpointSlices only. */
async function fakeCluster() {
  const { certificateFile, keyFile } = certificate(1);
  const asked: { path: string; token: string | undefined }[] = [];
  let watching: ServerResponse | undefined;
  const cluster = { items: [] as object[], version: 1 };
  const server = createServer(
    { cert: readFileSync(certificateFile), key: readFileSync(keyFile) },
    (request, response) => {
      asked.push({ path: request.url ?? "", token: request.headers.authorization });
      if (!request.url?.includes("watch=1")) {
        response.end(JSON.stringify({ metadata: { resourceVersion: String(cluster.version) }, items: cluster.items }));
        return;
      }
      watching = response;
      response.flushHeaders();
    },
  ).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    asked,
    cluster,
    api: {
      url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
      namespace: "models",
      token: () => "token-of-the-account",
      authority: readFileSync(certificateFile, "utf8"),
    },
    isWatched: () => watching !== undefined,
    say: (type: string, object: object) => watching?.write(`${JSON.stringify({ type, object })}\n`),
    endWatch: () => {
      watching?.end();
      watching = undefined;
    },
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

const slice = (version: number, ...endpoints: object[]) => ({
  metadata: { name: "vllm-abc", resourceVersion: String(version) },
  ports: [{ name: "http", port: 8000 }],
  endpoints,
});
const pod = (name: string, address: string, conditions: object = { ready: true }) => ({
  addresses: [address],
  conditions,
  targetRef: { kind: "Pod", name },
});

it("a Kubernetes service has the ready endpoints of its EndpointSlices, and follows changes", async () => {
  const fake = await fakeCluster();
  fake.cluster.items = [slice(1, pod("vllm-0", "10.0.0.1"), pod("vllm-1", "10.0.0.2", { ready: false }))];
  let changes = 0;
  const said: string[] = [];
  const onChange = () => {
    changes += 1;
  };
  const watched = { host: "vllm.models.svc.cluster.local", port: 80, api: fake.api };
  try {
    using endpoints = watchEndpoints(watched, onChange, (message) => said.push(message));
    await endpoints.first;
    expect(endpoints.endpoints()).toMatchObject([
      { address: "10.0.0.1", port: 8000, name: "vllm-0", isDraining: false },
    ]);
    await eventually(fake.isWatched);
    expect(fake.asked[0]?.path).toContain(
      "/namespaces/models/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dvllm",
    );
    expect(fake.asked[1]?.path).toContain("resourceVersion=1");
    expect(fake.asked[1]?.token).toBe("Bearer token-of-the-account");
    const leaving = pod("vllm-0", "10.0.0.1", { ready: false, serving: true, terminating: true });
    fake.say("MODIFIED", slice(2, leaving, pod("vllm-1", "10.0.0.2")));
    await eventually(() => changes === 2);
    expect(endpoints.endpoints()).toMatchObject([
      { address: "10.0.0.1", isDraining: true },
      { address: "10.0.0.2", isDraining: false },
    ]);
    // A watch that ends in order resumes at its version; if that version is gone, it begins with a new list.
    fake.say("BOOKMARK", { metadata: { name: "", resourceVersion: "7" } });
    fake.endWatch();
    await eventually(() => fake.asked.at(-1)?.path.includes("resourceVersion=7") === true);
    await eventually(fake.isWatched);
    fake.cluster.items = [slice(9, pod("vllm-2", "10.0.0.3"))];
    fake.say("ERROR", { code: 410 });
    await eventually(() => changes === 3);
    expect(endpoints.endpoints()).toMatchObject([{ address: "10.0.0.3", name: "vllm-2" }]);
    // While the API server is down, the known endpoints stay.
    fake.close();
    await eventually(() => said.length === 1);
    expect(said[0]).toContain("cannot be watched");
    expect(endpoints.endpoints()).toHaveLength(1);
  } finally {
    fake.close();
  }
});
