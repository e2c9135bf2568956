import { V8_FLAGS } from "../../cli/serve/workerd.ts";
import { hammer, post, type Request } from "./load.ts";
import { exactCpuSeconds } from "./processes.ts";
import { type Scale, SHORT_MODEL } from "./scenarios.ts";
import { startServe } from "./serve.ts";
import { median } from "./statistics.ts";
import { number, table } from "./tables.ts";
import { responsesRequest, type Upstream } from "./targets.ts";
import { bundleFolder, startWorker } from "./workers.ts";

/**
 * `npm run bench -- --minimum`: the CPU that the runtime itself uses for the parts of a request, interleaved with
 * requests to `serve`.
 */

const CLIENTS = 32;

/** The measured paths. `beyond` names the row to which a row adds. */
const ROWS: readonly { name: string; path: string; beyond?: string }[] = [
  { name: "a Worker that reads the body and answers", path: "/empty" },
  { name: "and calls a known object, which does nothing", path: "/call", beyond: "/empty" },
  { name: "and that object writes a row (four statements, a commit)", path: "/known", beyond: "/call" },
  { name: "a new object writes a row", path: "/new", beyond: "/empty" },
  { name: "asks the model server by `fetch` for an answer in one piece", path: "/whole", beyond: "/empty" },
  { name: "asks by `fetch` for a stream of the same answer, 16 tokens an event", path: "/reads", beyond: "/empty" },
  { name: "asks for that stream over a socket", path: "/socket", beyond: "/empty" },
];

const UNSTORED = "serve: JSON, `store: false`";
const OURS: readonly { name: string; stream: boolean; store: boolean; beyond?: string }[] = [
  { name: UNSTORED, stream: false, store: false },
  { name: "serve: JSON, stored first turn", stream: false, store: true, beyond: UNSTORED },
  { name: "serve: a stream, `store: false`", stream: true, store: false },
];

/** Makes the table of all rows, in CPU µs of a request. */
export async function measureMinimum(
  upstream: Upstream,
  { warmUpMs, windowMs, rounds }: Scale,
  progress: (text: string) => void,
): Promise<string> {
  const bare = await startWorker("object", upstream.port, { flags: V8_FLAGS });
  const serve = await startServe({ bundle: bundleFolder, upstreamPort: upstream.port });
  const parts = ROWS.map(({ path, ...row }) => ({
    ...row,
    key: path,
    target: bare,
    request: post(path, { model: SHORT_MODEL }, "never"),
  }));
  const requests = OURS.map(({ stream, store, ...row }) => ({
    ...row,
    key: row.name,
    target: serve,
    request: responsesRequest({ model: SHORT_MODEL, stream }, { store }),
  }));
  const all = [...parts, ...requests];
  const measured = new Map<string, number[]>(all.map(({ key }) => [key, []]));
  const load = (port: number, request: Request, durationMs: number) =>
    hammer(port, request, { clients: CLIENTS, durationMs });
  for (const { target, request } of all) await load(target.port, request, 10 * warmUpMs);
  for (let round = 1; round <= 2 * rounds + 1; round += 1) {
    for (const { key, target, request } of all) {
      progress(`round ${round}: ${key}`);
      const before = exactCpuSeconds(target.pid);
      const { samples } = await load(target.port, request, windowMs);
      measured.get(key)?.push(((exactCpuSeconds(target.pid) - before) * 1e6) / samples.length);
    }
  }
  await Promise.all([bare.stop(), serve.stop()]);
  const figure = (key: string) => median(measured.get(key) ?? []);
  const lines = all.map(({ name, key, beyond }) => [
    name,
    number(figure(key), 0),
    beyond === undefined ? "" : `+${number(figure(key) - figure(beyond), 0)}`,
  ]);
  return table([`${CLIENTS} clients`, "CPU µs", "more"], lines);
}
