import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, it } from "vitest";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";

/** A pool in which one model server accepts connections and never answers. */

let servers: Server[];
let gateway: WorkerdProcess;
let hangs = true;

const listsModel: RequestListener = (_, response) => {
  const body = JSON.stringify({ object: "list", data: [{ id: "m", object: "model", owned_by: "vllm" }] });
  response.writeHead(200, { "content-type": "application/json" }).end(body);
};

async function listening(listener: RequestListener): Promise<Server> {
  const server = createServer(listener).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  return server;
}

beforeAll(async () => {
  servers = await Promise.all([
    listening(listsModel),
    listening((request, response) => void (hangs || listsModel(request, response))),
  ]);
  const urls = servers.map((server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`);
  const upstreams = urls.map((url, index) => ({ name: index === 0 ? "well" : "hanging", url }));
  const variables = { UPSTREAMS: JSON.stringify(upstreams), ALLOW_ANONYMOUS: "true", PROMETHEUS_METRICS: "true" };
  gateway = await startWorkerd(variables, { readsFormats: false });
});
afterAll(async () => {
  await gateway.close();
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
});

it("/health/upstream reports it after two seconds, and the others at once", async () => {
  const answer = await fetch(`${gateway.url}/health/upstream`);
  expect(answer.status).toBe(200);
  const message = "The model server did not answer within 2000 ms.";
  expect(await answer.json()).toMatchObject({
    status: "degraded",
    models: ["m"],
    servers: [
      { name: "well", status: "ok" },
      {
        name: "hanging",
        status: "unreachable",
        error: { code: "upstream_timeout", message },
        down_since: expect.any(String),
      },
    ],
  });
});

it("the gauge responses_edge_upstream_up is 0 for it, until it answers", async () => {
  const up = async () =>
    [
      ...(await (await fetch(`${gateway.url}/metrics`)).text()).matchAll(
        /^responses_edge_upstream_up\{.*="(.*)"\} (.)$/gm,
      ),
    ]
      .map(([, name, value]) => `${name} ${value}`)
      .toSorted();
  await fetch(`${gateway.url}/health/upstream`);
  expect(await up()).toEqual(["hanging 0", "well 1"]);
  hangs = false;
  const answer = await fetch(`${gateway.url}/health/upstream`);
  expect(await answer.json()).toMatchObject({ status: "ok", servers: [{}, { name: "hanging", down_since: null }] });
  expect(await up()).toEqual(["hanging 1", "well 1"]);
});
