import { randomBytes } from "node:crypto";
import { cpSync, mkdirSync, readdirSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { nextBackup } from "../../cli/backup/backup-series.ts";
import { restore } from "../../cli/backup/restore.ts";
import { Refusal } from "../../cli/serve/refusal.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { ACCESS, type S3Double, startS3 } from "./s3-double.ts";
import { begin, cleanUp, newFolder, run } from "./serve-support.ts";
import { serveFolder } from "./served-folder.ts";
import { eventually } from "./support.ts";

/** Series of backups in a folder or a bucket, and restores from them. */

const model = "simulator";
/** Longer than a piece in a bucket. */
const FILE_BYTES = 9_000_000;

let vllm: SimulatorServer;
let s3: S3Double;
/** Two states of a data folder. The later one has one more response. */
let data: string;
let later: string;
let first: string;
let second: string;
let file: { id: string; bytes: Buffer };
beforeAll(async () => {
  vllm = await serveSimulator();
  s3 = await startS3();
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
  await s3.close();
});

/** Gives a folder's files an old time of change, the same in both folders, so that they count as settled. */
function letAlone(folder: string): void {
  const then = new Date("2026-01-01");
  for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
    if (name.endsWith(".sqlite")) utimesSync(join(folder, name), then, then);
  }
}

const environment = () => ({
  AWS_ENDPOINT_URL: s3.url,
  AWS_REGION: ACCESS.region,
  AWS_ACCESS_KEY_ID: ACCESS.id,
  AWS_SECRET_ACCESS_KEY: ACCESS.secret,
});

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
    const one = await nextBackup(data, series, 2, {});
    // The unfinished backup of a killed process.
    mkdirSync(join(series, "2026-01-01T00-00-00-000Z"));
    const two = await nextBackup(data, series, 2, {});
    expect([two.unchanged, two.removed]).toEqual([two.objects, []]);
    const three = await nextBackup(later, series, 2, {});
    expect(three.removed).toEqual([stampOf(one.at)]);
    expect(readdirSync(series).toSorted()).toEqual([two, three].map(({ at }) => stampOf(at)));

    const [newest, older] = [newFolder(), newFolder()];
    await restore({ from: series, data: newest });
    expect(await found(newest)).toEqual({ first: true, second: true, file: true });
    await restore({ from: series, at: stampOf(two.at), data: older });
    expect(await found(older)).toEqual({ first: true, second: false, file: true });
    expect(await refused(restore({ from: series, at: stampOf(one.at), data: newFolder() }))).toMatch(
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

describe("a series in a bucket", () => {
  const PLACE = "s3://backups/edge/nightly";
  const names = (beginning: string) =>
    [...s3.objects.keys()].filter((name) => name.startsWith(`backups/edge/nightly/${beginning}`));

  it("sends changed files, and is restored by the command, in its newest or an older state", async () => {
    const one = await nextBackup(data, PLACE, undefined, environment());
    const before = names("files/");
    const two = await nextBackup(data, PLACE, undefined, environment());
    expect([two.unchanged, two.objects]).toEqual([one.objects, one.objects]);
    expect(names("files/")).toEqual(before);
    const three = await nextBackup(later, PLACE, undefined, environment());
    expect(names("files/").length).toBeGreaterThan(before.length);
    expect(names("backups/")).toHaveLength(3);

    const [newest, older] = [newFolder(), newFolder()];
    const [code, output] = await run({ STATE_DIRECTORY: newest, ...environment() }, ["restore", PLACE]);
    expect([code, output]).toEqual([0, expect.stringContaining(`"objects":${three.objects}`)]);
    expect(await found(newest)).toEqual({ first: true, second: true, file: true });
    await restore({ from: PLACE, at: stampOf(one.at), environment: environment(), data: older });
    expect(await found(older)).toEqual({ first: true, second: false, file: true });

    // Pieces that only removed backups had are removed with them.
    const four = await nextBackup(data, PLACE, 1, environment());
    expect(four.removed).toEqual([one, two, three].map(({ at }) => stampOf(at)));
    expect(names("backups/")).toEqual([expect.stringContaining(stampOf(four.at))]);
    const last = newFolder();
    await restore({ from: PLACE, environment: environment(), data: last });
    expect(await found(last)).toEqual({ first: true, second: false, file: true });
  });

  it("restores nothing from a backup with a missing or changed piece", async () => {
    const place = "s3://backups/damaged";
    await nextBackup(data, place, undefined, environment());
    const [name = ""] = [...s3.objects.keys()].filter((each) => each.startsWith("backups/damaged/files/"));
    const bytes = s3.objects.get(name) ?? Buffer.alloc(0);
    s3.objects.set(name, Buffer.alloc(bytes.length));
    const wanted = { from: place, environment: environment() };
    expect(await refused(restore({ ...wanted, data: newFolder() }))).toMatch(
      /^65: .* is incomplete.*Nothing was restored\.$/,
    );
    s3.objects.delete(name);
    const into = newFolder();
    expect(await refused(restore({ ...wanted, data: into }))).toMatch(/^65: .* is incomplete.*Nothing was restored\.$/);
    expect(readdirSync(into)).toEqual([]);
    // The next backup sends the piece again.
    await nextBackup(data, place, undefined, environment());
    await restore({ ...wanted, data: into });
  });

  it("names the fault of a bucket, and no secret", async () => {
    const { AWS_SECRET_ACCESS_KEY: _, ...half } = environment();
    expect(await refused(nextBackup(data, PLACE, 1, half))).toBe("78: AWS_SECRET_ACCESS_KEY: needed for a bucket");
    const wrong = { ...environment(), AWS_SECRET_ACCESS_KEY: "not-this-one" };
    const said = await refused(nextBackup(data, PLACE, 1, wrong));
    expect(said).toMatch(/^77: s3:\/\/backups\/edge\/nightly does not answer as it should: S3 answers 403/);
    expect(said).not.toContain("not-this-one");
    expect(await refused(nextBackup(data, "s3://", 1, environment()))).toMatch(/^64: /);
    expect(await refused(restore({ from: "s3://empty-one", environment: environment(), data: newFolder() }))).toMatch(
      /^65: .* has no backup\. It has none\./,
    );
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
