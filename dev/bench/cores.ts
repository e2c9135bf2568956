import { Connection, get, type Request } from "./load.ts";
import { cpuSeconds } from "./processes.ts";
import { type Served, startServe } from "./serve.ts";
import { median } from "./statistics.ts";
import { number, table } from "./tables.ts";
import { responseIdIn, responsesRequest, type Upstream } from "./targets.ts";
import { bundleFolder } from "./workers.ts";

/**
 * `npm run bench -- --workers`: `serve` with several workers, compared with one. The client and the model server share
 * the machine's cores with the workers, so the rate of a run means little. The measure is the CPU per request of the
 * busiest worker, because that worker is the first to use up its core.
 */

export const CORES_MODEL = "simulator?words=20";

const CLIENTS = 128;
const NUMBERS = [1, 2, 4] as const;
const WARM_UP_MS = 1_000;

/** Sends one request after another on a connection of its own. */
type Client = (connection: Connection) => Promise<void>;

interface Work {
  name: string;
  /** Makes a client, and may send its first requests. */
  client(connection: Connection): Promise<Client>;
}

const ask = (body: object, extra: { store: boolean; previous_response_id?: string }): Request =>
  responsesRequest({ model: CORES_MODEL, stream: false, ...body }, extra);

const WORKS: readonly Work[] = [
  { name: "a new response, `store: false`", client: async () => sending(ask({}, { store: false })) },
  { name: "a new response, stored", client: async () => sending(ask({}, { store: true })) },
  {
    name: "a response that continues another one",
    client: async (connection) => {
      const previous = responseIdIn((await connection.read(ask({}, { store: true }))).text);
      return sending(ask({}, { store: true, previous_response_id: previous }));
    },
  },
  {
    name: "`GET /v1/responses/{id}`",
    client: async (connection) => {
      const id = responseIdIn((await connection.read(ask({}, { store: true }))).text);
      return sending(get(`/v1/responses/${id}`, "id"));
    },
  },
];

const sending =
  (request: Request): Client =>
  async (connection) =>
    void (await connection.send(request));

/** CPU per request in microseconds: of all workers, and of the busiest. */
interface Spent {
  all: number;
  busiest: number;
}

/**
 * Makes the table: the CPU of a request, and the number of requests that several workers with a core each could serve,
 * compared with one worker. The servers run side by side and are asked in turn, so that other work of the machine
 * affects all of them.
 */
export async function measureCores(
  upstream: Upstream,
  { windowMs, rounds }: { windowMs: number; rounds: number },
  progress: (text: string) => void,
): Promise<string> {
  const rows: string[][] = [];
  const served: Served[] = [];
  for (const workers of NUMBERS) {
    const variables = { WORKERS: String(workers) };
    served.push(await startServe({ bundle: bundleFolder, upstreamPort: upstream.port, variables, usesAllCores: true }));
  }
  for (const work of WORKS) {
    progress(work.name);
    const spent: Spent[][] = [];
    for (let round = 0; round < rounds; round += 1) {
      const each: Spent[] = [];
      for (const server of served) each.push(await measure(server, work, windowMs));
      spent.push(each);
    }
    const cells = NUMBERS.map((workers, index) => {
      const cpu = number(median(spent.map((each) => each[index]?.all ?? 0)), 0);
      const carried = median(spent.map((each) => (each[0]?.busiest ?? 0) / (each[index]?.busiest ?? 1)));
      return workers === 1 ? cpu : `${cpu}; × ${number(carried, 2)}`;
    });
    rows.push([work.name, ...cells]);
  }
  for (const server of served) await server.stop();
  return table(["CPU µs of a request", ...NUMBERS.map((workers) => `WORKERS=${workers}`)], rows);
}

async function measure({ port, pids }: Served, work: Work, windowMs: number): Promise<Spent> {
  const connections = await Promise.all(Array.from({ length: CLIENTS }, () => Connection.open(port)));
  const clients = await Promise.all(connections.map((connection) => work.client(connection)));
  const run = async (ms: number) => {
    const end = performance.now() + ms;
    let requests = 0;
    await Promise.all(
      connections.map(async (connection, index) => {
        for (; performance.now() < end; requests += 1) await clients[index]?.(connection);
      }),
    );
    return requests;
  };
  await run(WARM_UP_MS);
  const before = pids.map(cpuSeconds);
  const requests = await run(windowMs);
  const used = pids.map((pid, index) => ((cpuSeconds(pid) - (before[index] ?? 0)) * 1e6) / requests);
  for (const connection of connections) connection.close();
  return { all: used.reduce((sum, each) => sum + each, 0), busiest: Math.max(...used) };
}
