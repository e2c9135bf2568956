import { env as bindings } from "cloudflare:workers";
import { toApiError } from "@responses-edge/responses-api/errors";
import { expect, it, vi } from "vitest";
import { createSimulator } from "../../dev/simulator/handler.ts";
import { type AnalyticsDataset, loadConfig } from "../../src/config/index.ts";
import { NO_KEY } from "../../src/contract/grants.ts";
import { Connection } from "../../src/socket/connection.ts";
import { HomeClient } from "../../src/store/home/home-client.ts";
import { withObjects } from "../../src/store/objects/objects.ts";
import { FileClient } from "../../src/store/tenant/files/file-client.ts";
import { StoreClient } from "../../src/store/tenant/vector-stores/store-client.ts";
import { AnalyticsWriter } from "../../src/telemetry/analytics.ts";
import { telemetryOf } from "../../src/telemetry/telemetry.ts";

const env = withObjects(bindings);

/** A WebSocket is one invocation, for which Analytics Engine accepts 25 points, with any number of creates. */

type Point = Parameters<AnalyticsDataset["writeDataPoint"]>[0];

it("a connection with many creates loses none of them, and is reported when it has closed", async () => {
  const points: Point[] = [];
  const dataset: AnalyticsDataset = { writeDataPoint: (point) => void points.push(point) };
  const simulator = createSimulator();
  const fetch = (url: string, init: RequestInit) => simulator.fetch(new Request(url, init));
  const config = loadConfig({ VLLM: { fetch }, ALLOW_ANONYMOUS: "true", MAX_OPEN_TURNS: "10000", ANALYTICS: dataset });
  const telemetry = config.telemetry && telemetryOf(config.telemetry);
  const analytics = new AnalyticsWriter(dataset);
  const homes = new HomeClient(env, "acme");
  const frames: string[] = [];
  const waitUntil = () => {};
  const onEnded = vi.fn(() => analytics.end());
  const connection = new Connection(
    { send: (text) => void frames.push(text), close: () => {}, bufferedAmount: 0 },
    {
      ...{ tenant: "acme", config, shown: toApiError, onEnded },
      caller: (signal) => ({
        ...{
          config,
          tenant: "acme",
          homes,
          files: new FileClient(env, "acme"),
          stores: new StoreClient(env, "acme"),
          past: homes,
          bodyLength: 0,
          signal,
          waitUntil,
          quotas: env.QUOTAS,
          boards: env.BOARD,
          counting: { isDone: false },
        },
        identity: { tenant: "acme", keyId: NO_KEY, policy: undefined, counted: undefined, storingKey: undefined },
        observation: telemetry?.observe(
          { requestId: "r", transport: "websocket", endpoint: "response.create", tenant: "acme" },
          { waitUntil, isBrief: false, analytics },
        ),
      }),
    },
  );
  const creates = 30;
  const create = (model: string) =>
    connection.receive(JSON.stringify({ type: "response.create", model, input: "Hello!", store: false }));
  for (let index = 0; index < creates; index += 1) create("simulator");
  const ends = () => frames.filter((frame) => frame.includes('"type":"response.completed"')).length;
  await expect.poll(ends, { timeout: 60_000, interval: 5 }).toBe(creates);
  // A create that runs when the connection closes is reported, too.
  create("simulator?ttft=100000");
  await expect.poll(() => simulator.requests.length, { timeout: 60_000, interval: 5 }).toBeGreaterThan(creates);
  connection.leave();
  connection.leave();
  expect(onEnded).toHaveBeenCalledTimes(1);
  const sum = (column: number) => points.reduce((all, { doubles }) => all + (doubles[column - 1] ?? 0), 0);
  await expect.poll(() => sum(1), { timeout: 60_000, interval: 5 }).toBe(creates + 1);
  expect(points).toHaveLength(25);
  // One client has disconnected; all creates have had rounds.
  expect([sum(3), sum(12)]).toEqual([1, creates + 1]);
  expect(new Set(points.map(({ indexes }) => indexes.join()))).toEqual(new Set(["acme"]));
});
