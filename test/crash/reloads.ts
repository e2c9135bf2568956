import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { cleanUp, commandOf, newFolder, run, type Served, start, workerdsOf } from "../e2e/serve-support.ts";
import { newSeed, randomFrom } from "../random.ts";
import { fetchAnew } from "../workerd/tools.ts";

/**
 * `npm run reloads -- ROUNDS`: starts `serve` with one worker or three, and reloads it, changes its configuration file,
 * kills workers, makes backups and stops it, at random moments in the middle of requests. Prints its seed and a line for
 * each round. Ends with 1 if `serve` did not end in time, left a process behind or lost a response, if a backup failed
 * or lacks a response, or if a request failed in a round without kills. SEED repeats a run's choices, not its moments.
 */

const ROUNDS = Number(process.argv[2] ?? 50);
const CLIENTS = 6;
/** The grace of a stop, and the time after which a process that has not ended hangs. Milliseconds. */
const STOP_TIMEOUT_MS = 20_000;
const HANGS_MS = 40_000;

const random = randomFrom(newSeed("reloads"));
const below = (limit: number) => Math.floor(random() * limit);
const vllm = await serveSimulator();

/** Requests in the middle of which the server is changed, with their results. */
interface Load {
  /** The ids of the responses that the server has acknowledged. */
  made: string[];
  failures: string[];
  end(): Promise<void>;
}

function beginLoad(url: string): Load {
  const made: string[] = [];
  const failures: string[] = [];
  let goesOn = true;
  const one = async () => {
    const request = { background: random() < 0.4, stream: random() < 0.4 };
    const model = random() < 0.5 ? "simulator" : "simulator?tps=40";
    const body = JSON.stringify({ model, input: "Hello! ".repeat(10), ...request });
    const headers = { "content-type": "application/json" };
    const answer = await fetchAnew(`${url}/v1/responses`, { method: "POST", headers, body });
    const text = await answer.text();
    const id = /"id":"(resp_\w+)"/.exec(text)?.[1];
    const isWhole = !request.stream || text.includes("event: response.completed");
    if (answer.status === 200 && id && isWhole) made.push(id);
    else failures.push(`${answer.status} ${text.slice(-200)}`);
  };
  const client = async () => {
    for (; goesOn; await sleep(below(40))) await one().catch((error: unknown) => failures.push(String(error)));
  };
  const clients = Array.from({ length: CLIENTS }, client);
  return {
    made,
    failures,
    async end() {
      goesOn = false;
      await Promise.all(clients);
    },
  };
}

/** The processes whose command names a folder. */
function processesIn(folder: string): string[] {
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name) && commandOf(name).includes(folder));
}

async function stop(served: Served): Promise<number | null | "hangs"> {
  served.child.kill("SIGTERM");
  const code = await Promise.race([served.exited, sleep(HANGS_MS, "hangs" as const, { ref: false })]);
  if (code === "hangs") served.child.kill("SIGKILL");
  return code;
}

/** The reasons for which acknowledged responses are not there, or do not complete. */
async function lost(url: string, ids: readonly string[]): Promise<string[]> {
  const found = ids.map(async (id) => {
    for (const deadline = Date.now() + HANGS_MS; ; await sleep(100)) {
      const answer = await fetchAnew(`${url}/v1/responses/${id}`);
      const text = await answer.text();
      if (/"status":"completed"/.test(text)) return [];
      if (answer.status !== 200 || /"status":"failed"/.test(text) || Date.now() > deadline) return [`${id} ${text}`];
    }
  });
  return (await Promise.all(found)).flat();
}

/** The actions of a round. */
const ACTIONS = {
  reload: (served: Served) => served.child.kill("SIGHUP"),
  change: (_: Served, file: string) => writeFileSync(file, `vllm_max_retries: ${below(5)}\n`),
  kill: (served: Served) => {
    const workers = workerdsOf(served);
    const chosen = workers[below(workers.length)];
    if (chosen !== undefined) process.kill(chosen, "SIGKILL");
  },
};

type Action = keyof typeof ACTIONS | "backup";

/** A backup, with the responses that it must have. */
interface Backup {
  folder: string;
  made: string[];
  ended: ReturnType<typeof run>;
}

/** The reasons for which a backup is not right. */
async function faultsOf({ folder, made, ended }: Backup, variables: Record<string, string>): Promise<string[]> {
  const [code, output] = await ended;
  if (code !== 0) return [`backup: ${output}`];
  const restored = { ...variables, STATE_DIRECTORY: join(newFolder(), "state") };
  const [restoring, said] = await run(restored, ["restore", folder]);
  if (restoring !== 0) return [`restore: ${said}`];
  const served = await start(restored);
  const missing = await lost(served.url, made);
  return (await stop(served)) === 0 ? missing : [...missing, served.output()];
}

let hasFailed = false;
for (let round = 1; round <= ROUNDS; round += 1) {
  const folder = newFolder();
  const file = join(folder, "config.yaml");
  writeFileSync(file, "vllm_max_retries: 1\n");
  const workers = random() < 0.5 ? 1 : 3;
  const variables = {
    ...{ VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true", CONFIG_FILE: file, WORKERS: String(workers) },
    ...{ STATE_DIRECTORY: join(folder, "state"), STOP_TIMEOUT_MS: String(STOP_TIMEOUT_MS) },
  };
  const served = await start(variables);
  const load = beginLoad(served.url);
  // The death of the only worker ends `serve`.
  const choices: Action[] = ["reload", "reload", "change", "backup", ...(workers > 1 ? (["kill"] as const) : [])];
  const done: Action[] = [];
  const backups: Backup[] = [];
  for (let left = 1 + below(6); left > 0; left -= 1) {
    await sleep(below(900));
    const kind = choices[below(choices.length)] ?? "reload";
    done.push(kind);
    if (kind === "backup") {
      const target = join(newFolder(), "backup");
      backups.push({ folder: target, made: [...load.made], ended: run(variables, ["backup", target]) });
    } else ACTIONS[kind](served, file);
  }
  await sleep(below(1_500));
  // A backup needs the server to the end.
  await Promise.all(backups.map(({ ended }) => ended));
  const failures = done.includes("kill") ? [] : [...load.failures];
  const began = performance.now();
  const code = await stop(served);
  const ms = Math.round(performance.now() - began);
  await load.end();
  const left = processesIn(folder);
  const again = await start(variables);
  const missing = await lost(again.url, load.made);
  const codes = [code, await stop(again)];
  for (const backup of backups) failures.push(...(await faultsOf(backup, variables)));
  const isRight = codes.every((each) => each === 0) && [...left, ...missing, ...failures].length === 0;
  const results = { round, workers, done: done.join(), codes, ms, responses: load.made.length };
  console.log(JSON.stringify({ ...results, ...(!isRight && { left, missing, failures }) }));
  if (!isRight) {
    hasFailed = true;
    console.log(served.output());
  }
  cleanUp();
}
await vllm.close();
process.exit(hasFailed ? 1 : 0);
