import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { GROWTH_MODEL } from "./growth.ts";
import { KINDS } from "./neighbour-load.ts";
import { OTHER_CORE, start, stop } from "./processes.ts";
import { startServe } from "./serve.ts";
import { number, table } from "./tables.ts";
import type { Upstream } from "./targets.ts";

/** `npm run bench -- --neighbours`: a tenant's plain turns, one after another, while another tenant does all that it can. */

const KEYS = { one: "key-of-one", other: "key-of-the-other" };
const WARM_UP_MS = 2_000;

/** The time between two turns. Milliseconds. */
const PAUSE_MS = 20;

export async function measureNeighbours(
  upstream: Upstream,
  windowMs: number,
  progress: (text: string) => void,
): Promise<string> {
  const hash = (key: string) => createHash("sha256").update(key).digest("hex");
  const keys = Object.entries(KEYS).map(([tenant, key]) => `${tenant}:${hash(key)}`);
  const served = await startServe(upstream.port, { variables: { API_KEYS: keys.join(",") } });
  const url = `http://127.0.0.1:${served.port}`;
  const load = fileURLToPath(new URL("neighbour-load.ts", import.meta.url));
  const rows: string[][] = [];
  try {
    let alone: Turns | undefined;
    for (const kinds of [[], ...KINDS.map((kind) => [kind]), KINDS]) {
      const name = kinds.length === 0 ? "nothing" : kinds.length === 1 ? String(kinds[0]) : "all of it";
      progress(`the other tenant: ${name}`);
      const loaded =
        kinds.length > 0 && start(process.execPath, [load, url, KEYS.one, GROWTH_MODEL, ...kinds], OTHER_CORE);
      await sleep(WARM_UP_MS);
      const turns = await measure(url, windowMs);
      alone ??= turns;
      const ratio = `×${number(turns.p50 / alone.p50, 1)}`;
      rows.push([name, number(turns.p50, 0), ratio, number(turns.p99, 0), number(turns.failed, 0)]);
      if (loaded) await stop(loaded);
      await sleep(WARM_UP_MS);
    }
  } finally {
    await served.stop();
  }
  return table(["the other tenant's load", "p50, ms", "to alone", "p99, ms", "failed"], rows);
}

interface Turns {
  p50: number;
  p99: number;
  failed: number;
}

async function measure(url: string, windowMs: number): Promise<Turns> {
  const headers = { authorization: `Bearer ${KEYS.other}`, "content-type": "application/json" };
  const body = JSON.stringify({ model: GROWTH_MODEL, input: "Hello", store: false });
  const took: number[] = [];
  let failed = 0;
  for (const end = performance.now() + windowMs; performance.now() < end; await sleep(PAUSE_MS)) {
    const begun = performance.now();
    const answer = await fetch(`${url}/v1/responses`, { method: "POST", headers, body }).catch(() => undefined);
    await answer?.text();
    if (!answer?.ok) failed += 1;
    took.push(performance.now() - begun);
  }
  took.sort((a, b) => a - b);
  const at = (part: number) => took[Math.min(took.length - 1, Math.floor(took.length * part))] ?? 0;
  return { p50: at(0.5), p99: at(0.99), failed };
}
