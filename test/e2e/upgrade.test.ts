import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import recording from "./recordings/data-of-0.1.json" with { type: "json" };
import { cleanUp } from "./serve-support.ts";
import { type ServedFolder, serveFolder } from "./served-folder.ts";
import { lastPrompt } from "./support.ts";

/**
 * A data folder of version 0.1, with all answers of that version. Every later version must serve it: the names of
 * folders and files are derived from those of classes, tenants and homes, keys are found by their hashes, and sealed
 * content is decrypted (docs/self-hosting.md). The recording is never made again.
 */

let vllm: SimulatorServer;
let directory: string;
let server: ServedFolder;
let acme: OpenAI;
beforeAll(async () => {
  vllm = await serveSimulator();
  directory = mkdtempSync(join(tmpdir(), "upgrade-test-"));
  writeFiles(directory);
  server = await serveFolder(directory, vllm, recording.environment);
  acme = clientOf("key-of-acme");
});
afterAll(async () => {
  cleanUp();
  await vllm.close();
  rmSync(directory, { recursive: true, force: true });
});

function clientOf(apiKey: string): OpenAI {
  return new OpenAI({ apiKey, baseURL: server.url, maxRetries: 0 });
}

/**
 * Columns of a home's tables, by the version of the schema that added them. `test/unit/migrations.test.ts` has the
 * whole tables.
 */
const BROUGHT = [
  { version: 2, table: "turns", column: "messages" },
  { version: 4, table: "turns", column: "log" },
] as const;

/** Homes that are changed to versions of the schema before 4. The others stay as recorded. */
const OLDER = new Map([
  ["a48a7e558b1d49a8a3c28b753d2b8adf59908f108dc59be26acc5cef9d9b0b21", 1],
  ["8f45e65e28eff2be642650fb448b8fd3232856fa1089ad7ac46a684cb853fe37", 2],
  ["04260ce20da8483b60d193122b8b651a54f9a9d315febfcc949083b93a5d3e5d", 3],
]);

function writeFiles(folder: string): void {
  writeFileSync(join(folder, "responses-edge.json"), recording.marker);
  for (const [path, statements] of Object.entries(recording.files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    const database = new DatabaseSync(join(folder, path));
    database.exec("PRAGMA journal_mode = WAL; BEGIN");
    for (const statement of statements) database.exec(statement);
    const version = OLDER.get(path.slice(-71, -7)) ?? Number.POSITIVE_INFINITY;
    for (const each of BROUGHT) {
      if (each.version > version) database.exec(`ALTER TABLE ${each.table} DROP COLUMN ${each.column}`);
    }
    database.exec("COMMIT");
    database.close();
  }
}

const { ids, key } = recording;

describe("data of version 0.1", () => {
  it.each(Object.entries(recording.answers))("has the same answers: GET %s", async (path, answer) => {
    const found = await fetch(server.url + path, { headers: { authorization: "Bearer key-of-acme" } });
    expect(await found.text()).toBe(answer);
  });

  it("can be continued", async () => {
    const next = { model: "simulator", input: "Go on" };
    await acme.responses.create({ ...next, previous_response_id: ids.second });
    const said = ["First", "You said: First", "Second", "You said: Second", "Go on"];
    expect((lastPrompt({ vllm }).messages as { content: string }[]).map(({ content }) => content)).toEqual(said);
    await acme.responses.create({ ...next, conversation: ids.conversation });
    const items = await Array.fromAsync(acme.conversations.items.list(ids.conversation));
    expect(items).toHaveLength(5);
  });

  it("is decrypted where it was sealed", async () => {
    const input = [
      { type: "reasoning" as const, id: "rs_1", summary: [], encrypted_content: recording.sealed },
      { role: "user" as const, content: "And now?" },
    ];
    const answer = await acme.responses.create({ model: "simulator?reasoning=1", input });
    expect(answer).not.toHaveProperty("input_transformations");
    const tampered = [{ ...input[0], encrypted_content: `${recording.sealed.slice(0, -4)}AAAA` }, input[1]];
    const other = await acme.responses.create({ model: "simulator?reasoning=1", input: tampered as typeof input });
    expect(other).toHaveProperty("input_transformations");
  });

  it("includes a created key, which is accepted, its limits, and its usage", async () => {
    const umbrella = clientOf(key.value);
    expect((await umbrella.responses.retrieve(ids.theirs)).output_text).toBe("You said: Theirs");
    await expect(umbrella.responses.retrieve(ids.first)).rejects.toMatchObject({ status: 404 });
    await expect(umbrella.responses.create({ model: "other", input: "?" })).rejects.toMatchObject({ status: 403 });
    const ask = async (path: string) => {
      const answer = await fetch(server.url + path, { headers: { authorization: "Bearer root-key-of-ops" } });
      return (await answer.json()) as { data: object[] };
    };
    const [bucket] = recording.usage;
    const hour = `start_time=${bucket?.start_time}&end_time=${bucket?.end_time}&bucket_width=1h&group_by=project_id`;
    expect((await ask(`/organization/usage/completions?${hour}`)).data[0]).toEqual(bucket);
    expect((await ask("/organization/audit_logs")).data).toEqual(
      expect.arrayContaining([expect.objectContaining({ type: "api_key.created" })]),
    );
    const exported = await fetch(`${server.url}/admin/tenants/umbrella/export`, {
      headers: { authorization: "Bearer root-key-of-ops" },
    });
    expect(await exported.text()).toContain(ids.theirs);
  });
});
