import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { BUNDLE_VARIABLE, bundleInto, freePort, root, untilReady } from "../workerd/tools.ts";
import { beginLoad } from "./hand-over-load.ts";

/**
 * `npm run hand-over -- RATE STREAMS TIMES`: replaces the serving process TIMES times, with RATE requests per second
 * and STREAMS open streams. Prints the failures and the times of the requests. Exits with 1 if something failed.
 */

const [rate = 200, streams = 100, times = 3] = process.argv.slice(2).map(Number);
const SECONDS = 16;
const WORDS_PER_SECOND = 4;
/** Opening all streams at once takes a moment. This time is not measured. */
const SETTLED_MS = 3_000;

const modelPort = await freePort();
// The model server replays the simulator's answers, so that it uses little CPU of the shared cores.
const model = spawn(process.execPath, [join(root, "dev/bench/upstream.ts"), String(modelPort), "simulator"], {
  stdio: ["ignore", "ignore", "inherit"],
});
const folder = mkdtempSync(join(tmpdir(), "hand-over-"));
// A package ships its bundle. A checkout would make one during each hand-over, which takes seconds of a core.
const bundle = join(folder, "bundle");
bundleInto(bundle);
const state = join(folder, "state");
process.on("exit", () => {
  model.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});
await untilReady(model, `http://127.0.0.1:${modelPort}/health`);

const port = await freePort();
const url = `http://127.0.0.1:${port}`;
const gateway = spawn(process.execPath, [join(root, "cli/main.ts"), "serve"], {
  stdio: ["ignore", "pipe", "inherit"],
  env: {
    ...{ ...process.env, PORT: String(port), STATE_DIRECTORY: state, LOG_FORMAT: "json" },
    ...{ VLLM_BASE_URL: `http://127.0.0.1:${modelPort}/v1`, ALLOW_ANONYMOUS: "true", [BUNDLE_VARIABLE]: bundle },
  },
});
process.on("exit", () => gateway.kill("SIGKILL"));
const served: { after_ms: number }[] = [];
const ended: string[] = [];
createInterface({ input: gateway.stdout }).on("line", (line) => {
  const said = JSON.parse(line) as { level: string; message?: string; after_ms?: number };
  if (said.after_ms !== undefined) served.push({ after_ms: said.after_ms });
  if (said.message?.startsWith("The previous process")) ended.push(said.message ?? "");
  if (said.level !== "info") console.log(line);
});
await untilReady(gateway, `${url}/health`);

let hasFailed = false;
for (let time = 1; time <= times; time += 1) {
  const words = SECONDS * WORDS_PER_SECOND;
  const load = beginLoad({
    url,
    streams,
    words,
    wordsPerSecond: WORDS_PER_SECOND,
    rate,
    jsonModel: "simulator?live=json&",
  });
  for (const deadline = Date.now() + 30_000; load.openStreams() < streams && Date.now() < deadline; ) await sleep(100);
  const open = load.openStreams();
  await sleep(SETTLED_MS);
  load.measureAnew();
  gateway.kill("SIGHUP");
  await until(() => served.length === time);
  await sleep((SECONDS * 1_000) / 2);
  const { requests, failures, crossed, latencies } = await load.finish();
  await until(() => ended.length === time);
  const at = (part: number) => `${Math.round(latencies[Math.floor(latencies.length * part)] ?? 0)} ms`;
  const figures = `p50 ${at(0.5)}, p99 ${at(0.99)}, longest ${at(0.999999)}`;
  console.log(
    `${time}: ${requests} requests, ${open} open streams: ${failures.length} failed, ${crossed} sent again; ${figures}; served after ${served[time - 1]?.after_ms} ms. ${ended[time - 1]}`,
  );
  for (const failure of failures.slice(0, 10)) console.log(`  ${failure}`);
  hasFailed ||= failures.length > 0;
}
gateway.kill("SIGTERM");
process.exit(hasFailed ? 1 : 0);

async function until(condition: () => boolean): Promise<void> {
  for (const deadline = Date.now() + 60_000; !condition() && Date.now() < deadline; ) await sleep(50);
  if (!condition()) throw new Error("It has not come in a minute.");
}
