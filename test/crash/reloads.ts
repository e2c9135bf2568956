import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { cleanUp, commandOf, newFolder, run, type Served, start, workerdsOf } from "../e2e/serve-support.ts";
import { receiveHooks, Uses, variablesFor } from "../matrix/uses.ts";
import { newSeed, randomFrom } from "../random.ts";

/**
 * `npm run reloads -- ROUNDS`: starts `serve` with one worker or three, and reloads it, changes its configuration file,
 * kills workers, makes backups and stops it, at random moments in the middle of uses of every capability. Prints its seed
 * and a line for each round. Ends with 1 if `serve` did not end in time or left a process behind, if a backup failed, or if
 * something that was stored is not there afterwards, in the data folder or in a backup, or if a use failed. SEED repeats a
 * run's choices, not its moments.
 */

const ROUNDS = Number(process.argv[2] ?? 50);
/** The grace of a stop, and the time after which a process that has not ended hangs. Milliseconds. */
const STOP_TIMEOUT_MS = 20_000;
const HANGS_MS = 40_000;

const random = randomFrom(newSeed("reloads"));
const below = (limit: number) => Math.floor(random() * limit);
const vllm = await serveSimulator();
const hooks = await receiveHooks();

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

/** A backup, and the number of uses that it must have, by capability. */
interface Backup {
  folder: string;
  counts: Uses["counts"];
  ended: ReturnType<typeof run>;
}

/** Restores a backup in place of a server, and checks what it must have. Gives the reasons for which it is not right. */
async function faultsOf(
  { folder, counts, ended }: Backup,
  variables: Record<string, string>,
  uses: Uses,
): Promise<string[]> {
  const [code, output] = await ended;
  if (code !== 0) return [`backup: ${output}`];
  const restored = { ...variables, STATE_DIRECTORY: join(newFolder(), "state") };
  const [restoring, said] = await run(restored, ["restore", folder]);
  if (restoring !== 0) return [`restore: ${said}`];
  const served = await start(restored);
  await uses.check(counts);
  return (await stop(served)) === 0 ? [] : [served.output()];
}

let hasFailed = false;
for (let round = 1; round <= ROUNDS; round += 1) {
  const folder = newFolder();
  const file = join(folder, "config.yaml");
  writeFileSync(file, "vllm_max_retries: 1\n");
  const workers = random() < 0.5 ? 1 : 3;
  const variables: Record<string, string> = {
    ...{ ...variablesFor(vllm.url, hooks), CONFIG_FILE: file, WORKERS: String(workers) },
    ...{ STATE_DIRECTORY: join(folder, "state"), STOP_TIMEOUT_MS: String(STOP_TIMEOUT_MS) },
  };
  const served = await start(variables);
  // Every later server has the same address, so that uses and checks find it.
  variables.PORT = new URL(served.url).port;
  const used = { url: served.url, hasDeaths: false };
  const uses = new Uses(used, hooks);
  await uses.usedAgain();
  // The death of the only worker ends `serve`.
  const choices: Action[] = ["reload", "reload", "change", "backup", ...(workers > 1 ? (["kill"] as const) : [])];
  const done: Action[] = [];
  const backups: Backup[] = [];
  for (let left = 1 + below(6); left > 0; left -= 1) {
    await sleep(below(900));
    const kind = choices[below(choices.length)] ?? "reload";
    done.push(kind);
    if (kind === "kill") used.hasDeaths = true;
    if (kind === "backup") {
      const target = join(newFolder(), "backup");
      backups.push({ folder: target, counts: uses.counts, ended: run(variables, ["backup", target]) });
    } else ACTIONS[kind](served, file);
  }
  await sleep(below(1_500));
  // A backup needs the server to the end.
  await Promise.all(backups.map(({ ended }) => ended));
  // In the middle of uses, which then go on at the next server.
  used.hasDeaths = true;
  const began = performance.now();
  const code = await stop(served);
  const ms = Math.round(performance.now() - began);
  const left = processesIn(folder);
  const again = await start(variables);
  await uses.finish();
  const codes = [code, await stop(again)];
  const faults: string[] = [];
  for (const backup of backups) faults.push(...(await faultsOf(backup, variables, uses)));
  const failures = [...faults, ...uses.failures];
  const isRight = codes.every((each) => each === 0) && [...left, ...failures].length === 0;
  const stored = [...uses.counts.values()].reduce((sum, count) => sum + count, 0);
  const results = { round, workers, done: done.join(), codes, ms, uses: stored };
  console.log(JSON.stringify({ ...results, ...(!isRight && { left, failures }) }));
  if (!isRight) {
    hasFailed = true;
    console.log(served.output());
  }
  cleanUp();
}
await hooks.close();
await vllm.close();
process.exit(hasFailed ? 1 : 0);
