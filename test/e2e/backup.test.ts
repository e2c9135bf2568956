import { execFileSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { backup } from "../../cli/backup/backup.ts";
import { restore } from "../../cli/backup/restore.ts";
import { Refusal } from "../../cli/serve/refusal.ts";
import { uniqueKeyOf } from "../../cli/serve/workerd.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { passTime } from "../workerd/process.ts";
import { cleanUp, run as runProgram } from "./serve-support.ts";
import { type ServedFolder, serveFolder } from "./served-folder.ts";
import { eventually } from "./support.ts";
import { ended, prompts, textsOf, unique } from "./turns.ts";

/** `responses-edge backup` and `restore`, on data folders of real servers. */

let vllm: SimulatorServer;
let directory: string;
beforeAll(async () => {
  vllm = await serveSimulator();
  directory = mkdtempSync(join(tmpdir(), "backup-test-"));
});
afterAll(async () => {
  cleanUp();
  await vllm.close();
  rmSync(directory, { recursive: true, force: true });
});

interface Outcome {
  code: number | null;
  /** The lines that it has printed, as JSON values. */
  lines: { level: string; message: string; [field: string]: unknown }[];
}

/** Runs the program to its end. */
async function run(args: string[], data: string): Promise<Outcome> {
  const [code, output] = await runProgram(
    { STATE_DIRECTORY: data, ALLOW_ANONYMOUS: "true", VLLM_BASE_URL: `${vllm.url}/v1` },
    args,
  );
  return {
    code,
    lines: output
      .trimEnd()
      .split("\n")
      .filter(Boolean)
      .map((line) => JSON.parse(line)),
  };
}

/** Runs the program, which must succeed. Gives its last line. */
async function done(args: string[], data: string): Promise<Record<string, unknown>> {
  const { code, lines } = await run(args, data);
  expect(code, JSON.stringify(lines)).toBe(0);
  return lines.at(-1) ?? {};
}

/** The exit code and the message of a refusal. */
async function refused(work: Promise<unknown>): Promise<string> {
  const reason: unknown = await work.then(
    () => undefined,
    (error) => error,
  );
  expect(reason).toBeInstanceOf(Refusal);
  return reason instanceof Refusal ? `${reason.exitCode}: ${reason.message}` : "";
}

let folders = 0;
function newFolder(name: string): string {
  folders += 1;
  return join(directory, `${name}-${folders}`);
}

/** The bytes of a run's events, from its beginning to its end. */
async function eventsOf({ url }: ServedFolder, id: string): Promise<string> {
  return (await fetch(`${url}/responses/${id}?stream=true`)).text();
}

const model = "simulator";
const HOMES = uniqueKeyOf("Home");
const QUOTAS = uniqueKeyOf("Quota");

/** Each tree of responses has an object of its own. */
const A_HOME_EACH = { ALLOW_ANONYMOUS: "true", TREES_PER_HOME: "1" };

/** A folder with three responses, which was served. */
let served: { data: string; ids: string[] };
beforeAll(async () => {
  const data = newFolder("data");
  const server = await serveFolder(data, vllm, A_HOME_EACH);
  const ids: string[] = [];
  for (let turn = 0; turn < 3; turn += 1) {
    ids.push((await server.openai.responses.create({ model, input: "Hello!" })).id);
  }
  // Each home tells the list of responses and the tenant's stored amounts after its answer.
  await eventually(async () => {
    const listed = await (await fetch(`${server.url}/responses`)).text();
    const hasQuota = existsSync(join(data, QUOTAS)) && objectsIn(data, QUOTAS).length > 0;
    return hasQuota && ids.every((id) => listed.includes(id));
  });
  await server.stop("SIGTERM");
  served = { data, ids };
});

/** A copy of such a folder for one test, which nothing serves. */
function filled(): string {
  const data = newFolder("data");
  cpSync(served.data, data, { recursive: true });
  return data;
}

/** The files of a class's objects, by default of homes. */
const objectsIn = (folder: string, name = HOMES) =>
  readdirSync(join(folder, name)).filter((file) => /^[0-9a-f]{64}\.sqlite$/.test(file));

describe("a backup that is made while the server writes", () => {
  it("has everything that was acknowledged before; restored runs continue by themselves to their end", async () => {
    const [data, copy, restored] = [newFolder("data"), newFolder("backup"), newFolder("data")];
    const server = await serveFolder(data, vllm, A_HOME_EACH);
    const { openai } = server;
    const first = await openai.responses.create({ model, input: unique("first") });
    const second = await openai.responses.create({ model, input: unique("second"), previous_response_id: first.id });
    const conversation = await openai.conversations.create({});
    await openai.responses.create({ model, input: unique("spoken"), conversation: conversation.id });
    const finished = await openai.responses.create({ model, input: unique("run"), background: true });
    await ended(server, finished.id);
    const texts = await textsOf(server, conversation.id);
    const kept = await Promise.all([first, second, finished].map(({ id }) => openai.responses.retrieve(id)));
    const log = await eventsOf(server, finished.id);
    const runTexts = Array.from({ length: 4 }, () => unique("runs on"));
    // The runs stall until they are released.
    const stalled = "simulator?words=40&fault=stall:5";
    const runs = await Promise.all(
      runTexts.map((input) => openai.responses.create({ model: stalled, input, background: true })),
    );
    const asked = (text: string) => prompts({ vllm }).filter(({ texts: said }) => said.includes(text));
    await eventually(() => runTexts.every((text) => asked(text).length === 1));

    // Turns and streams that are acknowledged meanwhile, one after the other.
    let isOver = false;
    const busy = [1, 2, 3].map(async (number) => {
      let previous: string | null = null;
      while (!isOver) {
        const turn: OpenAI.Responses.ResponseCreateParamsStreaming = {
          model: "simulator?words=20",
          input: `Busy ${number}`,
          stream: true,
          previous_response_id: previous,
        };
        for await (const event of await openai.responses.create(turn)) {
          if (event.type === "response.completed") previous = event.response.id;
        }
        if (number === 3) previous = null;
      }
    });
    const made = await done(["backup", copy], data);
    isOver = true;
    await Promise.all(busy);
    expect(made.objects).toBeGreaterThanOrEqual(8);
    expect(made.damaged).toEqual([]);
    await server.stop("SIGKILL");

    expect(await done(["restore", copy], restored)).toMatchObject({ objects: made.objects, bytes: made.bytes });
    // The watchdog's time comes, without a request for a run.
    passTime(join(restored, HOMES), 60_000);
    const other = await serveFolder(restored, vllm, A_HOME_EACH);
    await eventually(() => runTexts.every((text) => asked(text).length === 2));
    for (const text of runTexts) asked(text).at(-1)?.release();
    for (const { id } of runs) {
      const response = await ended({ openai: other.openai, vllm }, id);
      expect(response.status).toBe("completed");
      expect(response.output_text.split(" ")).toHaveLength(40);
      expect(await eventsOf(other, id)).toContain("event: response.completed");
    }
    expect(await Promise.all(kept.map(({ id }) => other.openai.responses.retrieve(id)))).toEqual(kept);
    expect(await textsOf(other, conversation.id)).toEqual(texts);
    expect(await eventsOf(other, finished.id)).toBe(log);
    const next = { model, input: "Go on", previous_response_id: second.id };
    expect((await other.openai.responses.create(next)).output_text).toBe("You said: Go on");
    await other.openai.responses.create({ model, input: "Go on", conversation: conversation.id });
    await other.stop("SIGTERM");
  });

  it("lists only complete files, and all files that existed throughout; its vector stores can be searched", async () => {
    const [data, copy, restored] = [newFolder("data"), newFolder("backup"), newFolder("data")];
    const server = await serveFolder(data, vllm);
    const { files, vectorStores } = server.openai;
    const upload = (name: string, text: string) =>
      files.create({ file: new File([text], name), purpose: "assistants" });
    const textOf = (number: number) => `Owl ${number} hoots. `.repeat(40_000);
    const kept = await Promise.all(Array.from({ length: 8 }, (_, number) => upload(`${number}.txt`, textOf(number))));
    const store = await vectorStores.create({ name: "owls" });
    const told = await upload("told.txt", "A barn owl screeches.");
    await vectorStores.files.createAndPoll(store.id, { file_id: told.id }, { pollIntervalMs: 20 });
    const doomed = await Promise.all(
      Array.from({ length: 20 }, (_, number) => upload(`d${number}.txt`, textOf(number))),
    );

    let isOver = false;
    let number = 100;
    const uploads = [1, 2, 3].map(async () => {
      while (!isOver) {
        number += 1;
        await upload(`${number}.txt`, textOf(number));
      }
    });
    const deletions = doomed.map(async ({ id }, index) => {
      await eventually(() => isOver || number > 100 + 2 * index);
      await files.delete(id);
    });
    const backup = done(["backup", copy], data).finally(() => {
      isOver = true;
    });
    await Promise.all([backup, ...uploads, ...deletions]);
    await server.stop("SIGKILL");

    await done(["restore", copy], restored);
    const other = await serveFolder(restored, vllm);
    const listed = await Array.fromAsync(other.openai.files.list());
    expect(listed.map(({ id }) => id)).toEqual(expect.arrayContaining(kept.map(({ id }) => id)));
    for (const { id, filename } of listed) {
      if (id === told.id) continue;
      const text = await (await other.openai.files.content(id)).text();
      expect(text === textOf(Number(filename.replaceAll(/\D/g, "")))).toBe(true);
    }
    const found = await other.openai.vectorStores.search(store.id, { query: "screech" });
    expect(found.data.map(({ file_id }) => file_id)).toEqual([told.id]);
    await other.stop("SIGTERM");
  });

  it("links unchanged files to an earlier one", async () => {
    const data = filled();
    const [earlier, later, restored] = [newFolder("backup"), newFolder("backup"), newFolder("data")];
    letAlone(data);
    await done(["backup", earlier], data);
    const server = await serveFolder(data, vllm, A_HOME_EACH);
    const { id } = await server.openai.responses.create({
      model,
      input: "More",
      previous_response_id: served.ids[0] ?? null,
    });
    // The list of responses and the log of requests get it after the answer.
    for (const list of ["responses", "admin/requests"]) {
      await eventually(async () => (await (await fetch(`${server.url}/${list}`)).text()).includes(id));
    }
    await server.stop("SIGKILL");
    expect(await done(["backup", later, "--since", earlier], data)).toMatchObject({ objects: 6, unchanged: 2 });
    rmSync(earlier, { recursive: true });
    await done(["restore", later], restored);
    const rows = objectsIn(restored).map((name) => {
      using database = new DatabaseSync(join(restored, HOMES, name), { readOnly: true });
      return database.prepare("SELECT COUNT(*) AS turns FROM turns").get()?.turns;
    });
    expect(rows.toSorted()).toEqual([1, 1, 2]);
  });

  it("leaves out a damaged object, names it, and has the others", async () => {
    const data = filled();
    const [name = ""] = objectsIn(data);
    writeFileSync(join(data, HOMES, name), "x".repeat(8192));
    const [copy, restored] = [newFolder("backup"), newFolder("data")];
    const { code, lines } = await run(["backup", copy], data);
    expect(code).toBe(65);
    expect(lines.at(-1)?.message).toContain(`${HOMES}/${name}`);
    expect(await done(["restore", copy], restored)).toMatchObject({ objects: 5 });
  });

  const alarms = (file: string) => {
    using database = new DatabaseSync(file);
    const statement = database.prepare("SELECT * FROM _cf_ALARM ORDER BY actor_id");
    statement.setReadBigInts(true);
    return statement.all().map((row) => ({ ...row }));
  };

  it("has exactly its objects' alarms, with their names", async () => {
    const data = filled();
    const metadata = join(data, HOMES, "metadata.sqlite");
    const whole = alarms(metadata);
    expect(whole).toHaveLength(3);
    // The list looks as if it had been copied at another moment than the objects.
    const database = new DatabaseSync(metadata);
    database.exec(`UPDATE _cf_ALARM SET scheduled_time = 1;
      INSERT INTO _cf_ALARM VALUES ('${"f".repeat(64)}', 1, 'local:gone')`);
    database.close();
    const copy = newFolder("backup");
    await done(["backup", copy], data);
    expect(alarms(join(copy, HOMES, "metadata.sqlite"))).toEqual(whole);
  });
});

/** Gives a folder's files an old time of change. */
function letAlone(folder: string): void {
  const then = new Date(Date.now() - 60_000);
  for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
    if (name.endsWith(".sqlite")) utimesSync(join(folder, name), then, then);
  }
}

describe("a refusal with a reason", () => {
  let data: string;
  let copy: string;
  beforeAll(async () => {
    data = filled();
    copy = newFolder("backup");
    await backup({ data, into: copy });
  });

  /** A copy of the backup, changed by `change`. */
  function changed(change: (folder: string, object: string) => void): string {
    const folder = newFolder("backup");
    cpSync(copy, folder, { recursive: true });
    change(folder, join(folder, HOMES, objectsIn(folder)[0] ?? ""));
    return folder;
  }

  function withManifest(change: (manifest: { files: { path: string }[]; [field: string]: unknown }) => void): string {
    return changed((folder) => {
      const file = join(folder, "backup.json");
      const manifest = JSON.parse(readFileSync(file, "utf8"));
      change(manifest);
      writeFileSync(file, JSON.stringify(manifest));
    });
  }

  it.each<[string, () => string, RegExp]>([
    [
      "a file is damaged",
      () => changed((_, object) => flip(object)),
      /^65: The backup .* is incomplete\..*Nothing was restored\.$/,
    ],
    [
      "a file is missing",
      () => changed((_, object) => rmSync(object)),
      /^65: The backup .* is incomplete\. Missing or damaged: /,
    ],
    [
      "a file is cut off",
      () => changed((_, object) => writeFileSync(object, readFileSync(object).subarray(0, 4096))),
      /^65: .* is incomplete/,
    ],
    [
      "it was not finished",
      () => changed((folder) => rmSync(join(folder, "backup.json"))),
      /^65: .* is no backup, or an incomplete one/,
    ],
    [
      "its manifest is damaged",
      () => changed((folder) => writeFileSync(join(folder, "backup.json"), "{")),
      /^65: .* is damaged/,
    ],
    [
      "it names files of elsewhere",
      () =>
        withManifest((manifest) => {
          manifest.files = [{ ...manifest.files[0], path: "../../etc/passwd" }];
        }),
      /^65: .* is damaged/,
    ],
    ["its schema is newer", () => withManifest((manifest) => (manifest.schema = { Home: 99 })), /^78: .* newer/],
    ["its format is newer", () => withManifest((manifest) => (manifest.format = 3)), /^78: .* newer/],
    [
      "it was made before the first release",
      () => withManifest((manifest) => (manifest.format = 1)),
      /^78: The backup .* before the first release/,
    ],
  ])("is the answer to a restore where %s", async (_, damaged, words) => {
    const into = newFolder("data");
    expect(await refused(restore({ from: damaged(), data: into }))).toMatch(words);
    expect(existsSync(into) ? readdirSync(into).filter((name) => !name.startsWith("responses-edge.")) : []).toEqual([]);
  });

  it("is the answer to a restore over data, served or not", async () => {
    const server = await serveFolder(data, vllm, A_HOME_EACH);
    expect(await refused(restore({ from: copy, data }))).toMatch(
      /^64: The data folder .* is not empty\. A restore needs an empty one\.$/,
    );
    const { id } = await server.openai.responses.create({ model, input: "Still here" });
    expect((await server.openai.responses.retrieve(id)).id).toBe(id);
    await server.stop("SIGTERM");
    expect(await refused(restore({ from: copy, data }))).toMatch(/^64: /);
  });

  it("is the answer to serving an interrupted restore, which can be repeated", async () => {
    const into = newFolder("data");
    mkdirSync(join(into, ".restoring", HOMES), { recursive: true });
    const { code, lines } = await run(["serve"], into);
    expect(lines.map(({ message }) => message).join()).toMatch(/is incomplete: a restore into it was interrupted/);
    expect(code).toBe(65);
    await restore({ from: copy, data: into });
    expect(objectsIn(into)).toEqual(objectsIn(copy));
    expect(existsSync(join(into, ".restoring"))).toBe(false);
  });

  it("is the answer to a backup over other files, into the data folder, or without data", async () => {
    const files = readdirSync(copy);
    expect(await refused(backup({ data, into: copy }))).toMatch(/^64: .* is not empty/);
    expect(readdirSync(copy)).toEqual(files);
    expect(await refused(backup({ data, into: join(data, "backup") }))).toMatch(/^64: .* would be lost with it/);
    const nothing = backup({ data: newFolder("nowhere"), into: newFolder("backup") });
    expect(await refused(nothing)).toMatch(/^77: There is no data in /);
    expect(await refused(backup({ data, into: newFolder("backup"), since: directory }))).toMatch(
      /^65: .* is no backup/,
    );
  });

  it.each([[["backup"]], [["serve", "--since", "DIR"]]])("is the answer to the wrong use %j", async (args) => {
    expect((await run(args, data)).code).toBe(64);
  });

  it("is the answer of both on a full disk, and they leave nothing", async (context) => {
    const small = newFolder("small");
    mkdirSync(small);
    try {
      execFileSync("mount", ["-t", "tmpfs", "-o", "size=24k", "tmpfs", small], { stdio: "ignore" });
    } catch {
      context.skip("No file system of its own may be mounted here.");
    }
    try {
      for (const since of [undefined, copy]) {
        expect(await refused(backup({ data, into: small, since }))).toMatch(/^77: .*(left|needed)/);
        expect(readdirSync(small)).toEqual([]);
      }
      expect(await refused(restore({ from: copy, data: small }))).toMatch(/^77: /);
      expect(readdirSync(small).filter((name) => !name.startsWith("responses-edge."))).toEqual([]);
    } finally {
      execFileSync("umount", [small]);
    }
  });
});

function flip(file: string): void {
  const bytes = readFileSync(file);
  const at = bytes.length - 100;
  bytes[at] = (bytes[at] ?? 0) ^ 1;
  writeFileSync(file, bytes);
}
