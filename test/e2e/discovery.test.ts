import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { Discovery } from "../../cli/configuration/discovery.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { cleanUp, newFolder, start } from "./serve-support.ts";

/** Model servers behind one name. */

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
    using discovery = new Discovery(() => {});
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
