import { execFileSync } from "node:child_process";
import {
  closeSync,
  cpSync,
  existsSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { uniqueKeyOf } from "../../cli/serve/workerd.ts";
import { diagnose, type Finding } from "../../cli/tools/doctor.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { CLASS_NAMES } from "../../src/store/objects/registry.ts";
import { passTime } from "../workerd/process.ts";
import { root } from "../workerd/tools.ts";
import { ADMIN_KEY, ask as askAsRoot, ROOT, sha256 } from "./key-support.ts";
import { begin, cleanUp, mayMount, newFolder, run, type Served, start } from "./serve-support.ts";
import { eventually, type Gateway } from "./support.ts";

/** Data folders with files that are damaged on disk: the server's answers, and the repair by `doctor`. */

const HOMES = uniqueKeyOf("Home");
const LIST = "metadata.sqlite";
const DAY_MS = 86_400_000;
const SCRAPER = { authorization: "Bearer scraper" };
const KEY = "key-of-local";
/** A key of another tenant, whose list of files is damaged: otherwise the damaged list would hide a damaged file. */
const LISTING = "key-of-listing";

let vllm: SimulatorServer;
/** A folder with objects of each class and a list of alarms, among them two homes. No process serves it. */
let whole: string;
const ids: string[] = [];
/** The ids of a file, of a vector store with it, and of a list of files. */
const stored = { file: "", vectorStore: "", listing: "" };

beforeAll(async () => {
  vllm = await serveSimulator();
  whole = newFolder();
  const { served, openai } = await serve(whole);
  for (let count = 0; count < 2; count += 1) {
    ids.push((await openai.responses.create({ model: "simulator", input: `Keep me ${count}.` })).id);
  }
  // The batch fails at once, because its line names another endpoint.
  const line = { custom_id: "one", method: "POST", url: "/v1/embeddings", body: {} };
  const [file] = await Promise.all([
    openai.files.create({ purpose: "batch", file: new File([JSON.stringify(line)], "batch.jsonl") }),
    openai.webhooks.create({ name: "hook", url: "https://example.com/", event_types: ["response.completed"] }),
  ]);
  await openai.batches.create({ input_file_id: file.id, endpoint: "/v1/responses", completion_window: "24h" });
  const listed = new Set(filesOf(whole, "FileDirectory"));
  const listing = openai.withOptions({ apiKey: LISTING });
  await listing.files.create({ purpose: "user_data", file: new File(["Kept."], "kept.txt") });
  stored.listing = basename(filesOf(whole, "FileDirectory").find((name) => !listed.has(name)) ?? "");
  const { id } = await openai.vectorStores.create({ name: "kept" });
  stored.file = file.id;
  stored.vectorStore = id;
  const operator = { fetch: fetch as Gateway["fetch"], url: served.url };
  await askAsRoot(operator, "POST", "/v1/admin/keys", { tenant: "other", name: "kept" });
  // The board has a table of runs after the first run.
  const { id: run } = await openai.responses.create({
    ...{ model: "simulator?fault=stall_headers", input: "Run.", background: true, previous_response_id: ids[0] ?? "" },
  });
  await eventually(async () => JSON.stringify(await askAsRoot(operator, "GET", "/v1/admin/runs")).includes(run));
  await openai.responses.cancel(run);
  await stop(served);
  // The run's alarm is due within a minute, and would be set anew then.
  passTime(join(whole, HOMES), -DAY_MS);
});
afterAll(async () => {
  cleanUp();
  await vllm.close();
});

async function serve(data: string): Promise<{ served: Served; openai: OpenAI }> {
  const served = await start({
    STATE_DIRECTORY: data,
    VLLM_BASE_URL: `${vllm.url}/v1`,
    ADMIN_KEY,
    API_KEYS: `local:${sha256(KEY)},listing:${sha256(LISTING)}`,
    TREES_PER_HOME: "1",
    RETENTION_DAYS: "30",
    STOP_TIMEOUT_MS: "1000",
    PROMETHEUS_METRICS: "true",
    PROMETHEUS_TOKEN: "scraper",
  });
  return { served, openai: new OpenAI({ apiKey: KEY, baseURL: `${served.url}/v1`, maxRetries: 0 }) };
}

async function stop(served: Served): Promise<void> {
  served.child.kill("SIGTERM");
  await served.exited;
}

/** A copy of that folder, for a test to damage. */
function copied(): string {
  const data = newFolder();
  cpSync(whole, data, { recursive: true });
  return data;
}

const OBJECT_FILE = /^[0-9a-f]{64}\.sqlite$/;
const homesIn = (data: string) => readdirSync(join(data, HOMES)).filter((name) => OBJECT_FILE.test(name));

/** The files of a class's objects. */
function filesOf(data: string, className: string): string[] {
  const folder = join(data, uniqueKeyOf(className));
  return readdirSync(folder)
    .filter((name) => OBJECT_FILE.test(name))
    .map((name) => join(folder, name));
}

/** Overwrites all pages of a file except its first `kept`, as a disk does that loses data. */
function overwrite(file: string, kept: number): void {
  const descriptor = openSync(file, "r+");
  for (let at = kept * 4_096; at < statSync(file).size; at += 4_096)
    writeSync(descriptor, Buffer.alloc(4_096, 0xa5), 0, 4_096, at);
  closeSync(descriptor);
  for (const suffix of ["-wal", "-shm"]) rmSync(file + suffix, { force: true });
}

const alarmsIn = (data: string) => {
  using database = new DatabaseSync(join(data, HOMES, LIST), { readOnly: true });
  const select = database.prepare("SELECT * FROM _cf_ALARM ORDER BY actor_id");
  select.setReadBigInts(true);
  return select.all().map((row) => ({ ...row }));
};

const told = ({ file, what, done }: Finding) => [file, what, done !== undefined];

describe("an object that is damaged", () => {
  const damages: [how: string, damage: (file: string) => void][] = [
    ["its pages are overwritten", (file) => overwrite(file, 1)],
    ["it is cut off", (file) => truncateSync(file, statSync(file).size - 2 * 4_096 - 100)],
    ["it is no database any more", (file) => overwrite(file, 0)],
  ];

  it.each(damages)("(%s) is found, and quarantined with --repair; all others are unchanged", async (_, damage) => {
    const data = copied();
    const [name = ""] = homesIn(data);
    const file = join(data, HOMES, name);
    damage(file);
    expect((await diagnose(data, false)).findings.map(told)).toEqual([
      [`${HOMES}/${name}`, expect.stringMatching(/^damaged: /), false],
    ]);
    expect(existsSync(file)).toBe(true);
    const mended = await diagnose(data, true);
    expect(mended.findings.every(({ done }) => done !== undefined)).toBe(true);
    expect(existsSync(file)).toBe(false);
    expect(readdirSync(join(data, "quarantine", HOMES)).some((kept) => kept.startsWith(name))).toBe(true);
    expect((await diagnose(data, false)).findings).toEqual([]);
  });

  it("is named in the log once, with its tenant, and is an error that names the damage; the others are served; in quarantine it is a 404", async () => {
    const data = copied();
    for (const name of homesIn(data).slice(0, 1)) overwrite(join(data, HOMES, name), 1);
    const { served, openai } = await serve(data);
    const answers = async () => {
      const asked = ids.map((id) =>
        openai.responses.retrieve(id).then(
          () => "kept",
          ({ status, code }) => `${status} ${code}`,
        ),
      );
      return (await Promise.all(asked)).toSorted();
    };
    await eventually(async () => (await answers()).includes("500 storage_damaged"));
    expect(await answers()).toEqual(["500 storage_damaged", "kept"]);
    const lines = served
      .output()
      .split("\n")
      .filter((line) => line.includes('"event":"object_damaged"'));
    expect(lines.map((line) => JSON.parse(line))).toEqual([
      expect.objectContaining({
        level: "error",
        class: "Home",
        tenant: "local",
        file: expect.stringContaining(`${HOMES}/`),
      }),
    ]);
    expect(served.output()).not.toContain("Keep me");
    const [code] = await run({ STATE_DIRECTORY: data }, ["doctor", "--repair"]);
    expect(code).toBe(75);
    await stop(served);
    expect((await run({ STATE_DIRECTORY: data }, ["doctor"]))[0]).toBe(65);
    expect((await run({}, ["doctor", data, "--repair"]))[0]).toBe(0);
    expect((await run({}, ["doctor", data]))[0]).toBe(0);
    const again = await serve(data);
    const after = ids.map((id) =>
      again.openai.responses.retrieve(id).then(
        () => "kept",
        ({ status }) => `${status}`,
      ),
    );
    expect((await Promise.all(after)).toSorted()).toEqual(["404", "kept"]);
    await stop(again.served);
  });
});

it("goes into quarantine while the server serves, and its data is unknown then", async () => {
  const data = copied();
  for (const name of homesIn(data).slice(0, 1)) overwrite(join(data, HOMES, name), 1);
  const { served, openai } = await serve(data);
  const quarantine = () => run({ STATE_DIRECTORY: data }, "quarantine");
  expect(await quarantine()).toEqual([1, expect.stringContaining("knows no damaged object")]);
  const answers = async () => {
    const asked = ids.map((id) =>
      openai.responses.retrieve(id).then(
        () => "kept",
        ({ status }) => status,
      ),
    );
    return (await Promise.all(asked)).toSorted();
  };
  await eventually(async () => (await answers()).includes(500) && served.output().includes('"object_damaged"'));
  expect(await quarantine()).toEqual([0, "Another process serves.\n"]);
  expect(await answers()).toEqual([404, "kept"]);
  expect(served.output().match(/"event":"object_quarantined"/g)).toHaveLength(1);
  // With its write-ahead log.
  expect(readdirSync(join(data, "quarantine", HOMES))).toContainEqual(expect.stringMatching(/^[0-9a-f]{64}\.sqlite\./));
  await stop(served);
});

it("comes back alone from a backup, with its alarm; the file that was there is in quarantine", async () => {
  const data = copied();
  const copy = join(newFolder(), "copy");
  expect((await run({ STATE_DIRECTORY: whole }, ["backup", copy]))[0]).toBe(0);
  const files = [...filesOf(data, "Home").slice(0, 1), ...filesOf(data, "KeyDirectory")];
  for (const file of files) overwrite(file, 1);
  const before = alarmsIn(data);
  expect((await run({}, ["doctor", data, "--repair"]))[0]).toBe(0);
  expect(alarmsIn(data)).toHaveLength(1);
  const restored = (only: string, at = data) => run({ STATE_DIRECTORY: at }, ["restore", copy, "--only", only]);
  for (const file of files) {
    const only = `${basename(dirname(file))}/${basename(file)}`;
    expect(await restored(only)).toEqual([0, expect.stringContaining(`Restored ${file} of 20`)]);
  }
  expect(alarmsIn(data)).toEqual(before);
  // Again: the file is there.
  const only = `${HOMES}/${basename(files[0] ?? "")}`;
  expect(await restored(only)).toEqual([0, expect.stringContaining(`The file that was there is ${data}/quarantine/`)]);
  expect(await restored(`${HOMES}/${LIST}`)).toEqual([64, expect.stringContaining("has no object")]);
  expect((await diagnose(data, false)).findings).toEqual([]);
  const { served, openai } = await serve(data);
  for (const id of ids) expect(await openai.responses.retrieve(id)).toMatchObject({ id });
  expect(await restored(only)).toEqual([75, expect.any(String)]);
  await stop(served);
});

it("is an error that names the damage, for every class, and is logged once with its tenant", async () => {
  const data = copied();
  const asRoot = { headers: { authorization: `Bearer ${ROOT}` } };
  // For each class, a request that needs its objects.
  const asked: Record<string, (openai: OpenAI) => Promise<unknown>> = {
    Quota: (openai) => openai.get("/organization/usage/completions?start_time=1"),
    FileDirectory: (openai) => openai.withOptions({ apiKey: LISTING }).files.list(),
    Webhooks: (openai) => openai.webhooks.list(),
    Batches: (openai) => openai.batches.list(),
    ResponseIndex: (openai) => openai.get("/responses"),
    Home: (openai) => openai.responses.retrieve(ids[0] ?? ""),
    FileBytes: (openai) => openai.files.content(stored.file),
    VectorStore: (openai) => openai.vectorStores.retrieve(stored.vectorStore),
    Board: (openai) => openai.get("/admin/runs", asRoot),
  };
  // Each request needs the directory of keys, which has a test of its own.
  expect([...Object.keys(asked), "KeyDirectory"].toSorted()).toEqual(CLASS_NAMES.toSorted());
  const damagedIn = (name: string) =>
    filesOf(data, name).filter((file) => name !== "FileDirectory" || basename(file) === stored.listing);
  for (const name of Object.keys(asked)) for (const file of damagedIn(name)) overwrite(file, 1);
  const { served, openai } = await serve(data);
  const answers = () =>
    Promise.all(
      Object.entries(asked).map(([name, ask]) =>
        ask(openai).then(
          () => [name, 200],
          ({ status, code }) => [name, `${status} ${code}`],
        ),
      ),
    );
  const OTHERS: Record<string, string | undefined> = { Board: undefined, FileDirectory: "listing" };
  const damaged = Object.keys(asked).map((name) => [name, "500 storage_damaged"]);
  await answers();
  expect(await answers()).toEqual(damaged);
  const lines = served
    .output()
    .split("\n")
    .filter((line) => line.includes('"event":"object_damaged"'))
    .map((line) => JSON.parse(line));
  expect(lines.map(({ class: name, tenant }) => [name, tenant]).toSorted()).toEqual(
    Object.keys(asked)
      .map((name) => [name, name in OTHERS ? OTHERS[name] : "local"])
      .toSorted(),
  );
  await stop(served);
  const { findings } = await diagnose(data, true);
  expect(findings.every(({ done }) => done !== undefined)).toBe(true);
  for (const name of Object.keys(asked)) expect(damagedIn(name)).toEqual([]);
});

it("of the directory of keys is a 503 for every request with a key, and readiness and a gauge show it", async () => {
  const data = copied();
  for (const file of filesOf(data, "KeyDirectory")) overwrite(file, 1);
  const { served, openai } = await serve(data);
  const got = async (path: string) => (await fetch(`${served.url}${path}`, { headers: SCRAPER })).text();
  const state = async () => JSON.parse(await got("/health/ready"));
  // No request with a key has come yet.
  await eventually(async () => (await state()).reasons.includes("keys_damaged"));
  expect(await state()).toMatchObject({ status: "limited" });
  const asRoot = { headers: { authorization: `Bearer ${ROOT}` } };
  const codes = () =>
    Promise.all(
      [openai.get("/admin/keys", asRoot), openai.responses.retrieve(ids[0] ?? "")].map((answer) =>
        answer.then(
          () => 200,
          ({ status, code }) => `${status} ${code}`,
        ),
      ),
    );
  expect(await codes()).toEqual(["503 keys_damaged", "503 keys_damaged"]);
  const metrics = await got("/metrics");
  expect(metrics).toMatch(/^responses_edge_objects_damaged\{responses_edge_class="KeyDirectory"\} 1$/m);
  expect(metrics).toMatch(/^responses_edge_keys_up 0$/m);
  expect(served.output().match(/"event":"object_damaged"/g)).toHaveLength(1);
  await stop(served);
  await diagnose(data, true);
  expect(filesOf(data, "KeyDirectory")).toEqual([]);
});

describe("a list of alarms that is damaged", () => {
  it("is rebuilt from the objects when the server starts, with their times and the names that its bytes still contain", async () => {
    const data = copied();
    const before = alarmsIn(data);
    expect(before).toHaveLength(2);
    // The header is lost, but the rows are there: SQLite cannot read the file.
    const file = join(data, HOMES, LIST);
    const descriptor = openSync(file, "r+");
    writeSync(descriptor, Buffer.alloc(1_000, 0), 0, 1_000, 0);
    closeSync(descriptor);
    const { served } = await serve(data);
    expect(served.output()).toContain('"event":"alarms_rebuilt"');
    await stop(served);
    expect(alarmsIn(data)).toEqual(before);
    expect(readdirSync(join(data, "quarantine", HOMES))).toContainEqual(expect.stringMatching(/^metadata\.sqlite\./));
  });

  it("does not prevent a backup, which has a rebuilt list, and ends with 65", async () => {
    const data = copied();
    const before = alarmsIn(data);
    const file = join(data, HOMES, LIST);
    const descriptor = openSync(file, "r+");
    writeSync(descriptor, Buffer.alloc(1_000, 0), 0, 1_000, 0);
    closeSync(descriptor);
    const copy = join(newFolder(), "copy");
    const [code, output] = await run({ STATE_DIRECTORY: data }, ["backup", copy]);
    expect(code).toBe(65);
    expect(output).toContain(`${HOMES}/${LIST}`);
    expect(alarmsIn(copy)).toEqual(before);
  });

  it("without any readable bytes is rebuilt without alarms, and their number is reported", async () => {
    const data = copied();
    overwrite(join(data, HOMES, LIST), 0);
    const { findings } = await diagnose(data, true);
    expect(findings.map(told)).toEqual([
      [`${HOMES}/${LIST}`, expect.stringMatching(/list of alarms is damaged/), true],
    ]);
    expect(findings[0]?.done).toMatch(/0 alarms; of 2 objects the names were not found/);
  });

  it("that lacks an alarm of an object gets it again, with the object's name", async () => {
    const data = copied();
    const before = alarmsIn(data);
    const database = new DatabaseSync(join(data, HOMES, LIST));
    database.exec("DELETE FROM _cf_ALARM");
    database.close();
    expect((await diagnose(data, true)).findings).toHaveLength(before.length);
    expect(alarmsIn(data)).toEqual(before);
  });

  it("with wrong rows is corrected", async () => {
    const data = copied();
    const before = alarmsIn(data);
    const database = new DatabaseSync(join(data, HOMES, LIST));
    database.exec(
      `UPDATE _cf_ALARM SET scheduled_time = 1; INSERT INTO _cf_ALARM VALUES ('${"f".repeat(64)}', 1, 'local:gone')`,
    );
    database.close();
    expect((await diagnose(data, true)).findings).toHaveLength(3);
    expect(alarmsIn(data)).toEqual(before);
  });
});

it.skipIf(!mayMount())("a read-only folder is reported, with the exit code 77", async () => {
  const data = copied();
  const mounts = `mount --bind ${data} ${data} && mount -o remount,ro,bind ${data}`;
  const variables = { STATE_DIRECTORY: data, VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true" };
  const served = begin(variables, "serve", { mounts });
  expect(await served.exited).toBe(77);
  expect(served.output()).toContain("is read-only");
});

/** Watches a folder of which the file system is mounted for reading alone, and then for writing again. */
const REMOUNTS = `
import { execFileSync } from "node:child_process";
import { watchDisk } from ${JSON.stringify(join(root, "cli/serve/free-disk.ts"))};
const [folder] = process.argv.slice(1);
const told = [];
const { promise, resolve } = Promise.withResolvers();
const remount = (how) => execFileSync("mount", ["-o", "remount," + how, folder]);
using watched = await watchDisk(folder, () => 0, async (state) => {
  told.push(state);
  if (told.length === 3) resolve();
  else setImmediate(remount, state === "ok" ? "ro" : "rw");
});
// The watch keeps no process alive.
const life = setInterval(() => {}, 60_000);
await promise;
clearInterval(life);
console.log(told.join());
`;

it.skipIf(!mayMount())("a watched file system that turns read-only, and writable again, has these states", () => {
  const folder = newFolder();
  const shell = `mount -t tmpfs none ${folder} && echo {} > ${folder}/responses-edge.json && exec "$0" "$@"`;
  const node = [process.execPath, "--input-type=module", "-e", REMOUNTS, folder];
  const args = ["--mount", "--map-root-user", "sh", "-c", shell, ...node];
  expect(execFileSync("unshare", args, { encoding: "utf8" })).toBe("ok,read_only,ok\n");
});

it("an invalid marker is removed, and the next start writes it", async () => {
  const data = copied();
  writeFileSync(join(data, "responses-edge.json"), "{");
  expect(
    (await run({ STATE_DIRECTORY: data, VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true" }, ["serve"]))[0],
  ).toBe(78);
  expect((await diagnose(data, true)).findings.map(told)).toEqual([["responses-edge.json", expect.any(String), true]]);
  const { served } = await serve(data);
  await stop(served);
});
