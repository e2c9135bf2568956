import { randomBytes } from "node:crypto";
import { cpSync, mkdirSync, readdirSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { nextBackup } from "../../cli/backup/backup-series.ts";
import { restore } from "../../cli/backup/restore.ts";
import { Refusal } from "../../cli/serve/refusal.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { begin, cleanUp, newFolder, run } from "./serve-support.ts";
import { serveFolder } from "./served-folder.ts";
import { eventually } from "./support.ts";

/** Series of backups in a folder, and restores from them. */

const model = "simulator";
const FILE_BYTES = 3_000_000;

let vllm: SimulatorServer;
/** Two states of a data folder. The later one has one more response. */
let data: string;
let later: string;
let first: string;
let second: string;
let file: { id: string; bytes: Buffer };
beforeAll(async () => {
  vllm = await serveSimulator();
  data = newFolder();
  later = newFolder();
  const variables = { ALLOW_ANONYMOUS: "true", TREES_PER_HOME: "1" };
  const server = await serveFolder(data, vllm, variables);
  first = (await server.openai.responses.create({ model, input: "First" })).id;
  const bytes = randomBytes(FILE_BYTES);
  const made = await server.openai.files.create({ file: new File([bytes], "f.bin"), purpose: "user_data" });
  file = { id: made.id, bytes };
  await server.stop("SIGTERM");
  cpSync(data, later, { recursive: true, preserveTimestamps: true });
  const again = await serveFolder(later, vllm, variables);
  second = (await again.openai.responses.create({ model, input: "Second" })).id;
  await again.stop("SIGTERM");
  for (const folder of [data, later]) letAlone(folder);
});
afterAll(async () => {
  cleanUp();
  await vllm.close();
});

/** Gives a folder's files an old time of change, the same in both folders, so that they count as settled. */
function letAlone(folder: string): void {
  const then = new Date("2026-01-01");
  for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
    if (name.endsWith(".sqlite")) utimesSync(join(folder, name), then, then);
  }
}

async function refused(work: Promise<unknown>): Promise<string> {
  const reason: unknown = await work.then(
    () => undefined,
    (error) => error,
  );
  expect(reason).toBeInstanceOf(Refusal);
  return reason instanceof Refusal ? `${reason.exitCode}: ${reason.message}` : "";
}

/** Serves a restored folder. Tells which of the two responses it has, and whether the file is complete. */
async function found(folder: string): Promise<{ first: boolean; second: boolean; file: boolean }> {
  const server = await serveFolder(folder, vllm, { ALLOW_ANONYMOUS: "true", TREES_PER_HOME: "1" });
  const has = (id: string) =>
    server.openai.responses.retrieve(id).then(
      () => true,
      () => false,
    );
  const content = Buffer.from(await (await server.openai.files.content(file.id)).arrayBuffer());
  const result = { first: await has(first), second: await has(second), file: content.equals(file.bytes) };
  await server.stop("SIGTERM");
  return result;
}

const stampOf = (at: string) => /[^/ ]+$/.exec(at)?.[0] ?? "";

describe("a series in a folder", () => {
  it("keeps the configured number, links unchanged files, and removes unfinished backups", async () => {
    const series = newFolder();
    const one = await nextBackup(data, series, 2);
    // The unfinished backup of a killed process.
    mkdirSync(join(series, "2026-01-01T00-00-00-000Z"));
    const two = await nextBackup(data, series, 2);
    expect([two.unchanged, two.removed]).toEqual([two.objects, []]);
    const three = await nextBackup(later, series, 2);
    expect(three.removed).toEqual([stampOf(one.folder)]);
    expect(readdirSync(series).toSorted()).toEqual([two, three].map(({ folder }) => stampOf(folder)));

    const [newest, older] = [newFolder(), newFolder()];
    await restore({ from: series, data: newest });
    expect(await found(newest)).toEqual({ first: true, second: true, file: true });
    await restore({ from: series, at: stampOf(two.folder), data: older });
    expect(await found(older)).toEqual({ first: true, second: false, file: true });
    expect(await refused(restore({ from: series, at: stampOf(one.folder), data: newFolder() }))).toMatch(
      /^65: .* has no backup/,
    );
  });

  it("continues until it is told to stop, also after a failed backup", async () => {
    const [series, nothing] = [newFolder(), newFolder()];
    const variables = { STATE_DIRECTORY: data, ALLOW_ANONYMOUS: "true", VLLM_BASE_URL: `${vllm.url}/v1` };
    const made = begin(variables, ["backup", series, "--keep", "3", "--every", "1h"]);
    const none = begin({ ...variables, STATE_DIRECTORY: nothing }, ["backup", series, "--every", "1h"]);
    await eventually(() => made.output().includes("Backed up") && none.output().includes("There is no data"));
    expect([made.child.exitCode, none.child.exitCode]).toEqual([null, null]);
    for (const { child } of [made, none]) child.kill("SIGTERM");
    expect(await Promise.all([made.exited, none.exited])).toEqual([0, 0]);
    expect(readdirSync(series)).toHaveLength(1);
  });
});

it.each([
  [["backup", "DIR", "--keep", "0"]],
  [["backup", "DIR", "--every", "1s"]],
  [["backup", "DIR", "--every", "60d"]],
  [["backup", "DIR", "--keep", "2", "--since", "OTHER"]],
  [["restore", "DIR", "--keep", "2"]],
  [["serve", "--at", "x"]],
])("%j is refused as a wrong use", async (args) => {
  const [code] = await run({ STATE_DIRECTORY: data }, args);
  expect(code).toBe(64);
});
