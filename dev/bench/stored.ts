import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { root } from "../../test/workerd/tools.ts";
import { get, hammer, post } from "./load.ts";
import { exactCpuSeconds } from "./processes.ts";
import { type Served, startServe } from "./serve.ts";
import { number, table } from "./tables.ts";
import { ask, responseIdIn, type Upstream } from "./targets.ts";

/** `npm run bench -- --growth`: the cost of requests, a restart and a backup as more is stored. */

export const STORED_MODEL = "simulator?words=5";

const COUNTS = [1_000, 10_000, 100_000] as const;
const CLIENTS = 32;
const WINDOW_MS = 2_000;

const create = post("/v1/responses", { model: STORED_MODEL, input: "Hello" }, "resp_");

export async function measureStored(upstream: Upstream, progress: (text: string) => void): Promise<string> {
  const state = mkdtempSync(join(tmpdir(), "responses-edge-stored-"));
  const begin = () => startServe(upstream.port, { state });
  let served = await begin();
  const rows: string[][] = [];
  let stored = 0;
  try {
    for (const count of COUNTS) {
      progress(`${count} stored responses`);
      while (stored < count) stored += (await load(served, create, Math.min(20_000, (count - stored) * 2))).requests;
      const creating = await load(served, create, WINDOW_MS);
      stored += creating.requests;
      const id = responseIdIn(await ask(served.port, create));
      const reading = await load(served, get(`/v1/responses/${id}`, "resp_"), WINDOW_MS);
      await served.stop();
      const restartMs = await timed(async () => {
        served = await begin();
      });
      const folder = join(state, "..", `${stored}-backup`);
      const backup = [process.execPath, join(root, "cli/main.ts"), "backup", folder] as const;
      const backupMs = await timed(async () => {
        const [command, ...args] = backup;
        const { status } = spawnSync(command, args, { env: { ...process.env, STATE_DIRECTORY: state } });
        if (status !== 0) throw new Error("the backup was not made");
      });
      rmSync(folder, { recursive: true });
      const cells = [creating.micros, reading.micros, restartMs, backupMs].map((each) => number(each, 0));
      rows.push([number(stored, 0), ...cells]);
    }
  } finally {
    await served.stop();
    rmSync(state, { recursive: true, force: true });
  }
  return table(["stored responses", "create, CPU µs", "`GET`, CPU µs", "restart, ms", "backup, ms"], rows);
}

async function load({ port, pid }: Served, request: typeof create, durationMs: number) {
  const before = exactCpuSeconds(pid);
  const { samples } = await hammer(port, request, { clients: CLIENTS, durationMs });
  return { requests: samples.length, micros: ((exactCpuSeconds(pid) - before) * 1e6) / samples.length };
}

async function timed(work: () => Promise<void>): Promise<number> {
  const began = performance.now();
  await work();
  return performance.now() - began;
}
