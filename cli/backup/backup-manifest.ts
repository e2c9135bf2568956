import { createHash } from "node:crypto";
import { createReadStream, existsSync, readFileSync } from "node:fs";
import { open, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { EXIT, Refusal } from "../serve/refusal.ts";
import { checkFormat, FORMAT } from "../serve/written-by.ts";
import { openQuiet } from "./object-files.ts";

/**
 * A backup: a folder for each class with a SQLite file for each object, as in a data folder, and a manifest with the
 * checksum of each file. The manifest is written last: a folder without one is no backup.
 */

export const MANIFEST_FILE = "backup.json";

/** A class's folder and a file in it. Nothing else is read or written, whatever a manifest says. */
const filePath = z.string().regex(/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}\/([0-9a-f]{64}|metadata)\.sqlite$/);
const wholeNumber = z.string().regex(/^-?\d{1,20}$/);

const file = z.object({
  path: filePath,
  bytes: z.int().min(0),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  /** The time of the object's alarm, Unix nanoseconds; null: it has none. */
  alarm: wholeNumber.nullable(),
  /** The state of the original file, if it was settled; else null. */
  source: z.object({ bytes: wholeNumber, mtime_ns: wholeNumber, inode: wholeNumber }).nullable(),
});

const bucketFiles = z.object({ files: z.int().min(0), bytes: z.int().min(0) });

const manifest = z.object({
  format: z.literal(FORMAT),
  /** The version of the program that made the backup. */
  version: z.string(),
  /** The versions of the tables of each class. */
  schema: z.record(z.string(), z.int()),
  started_at: z.iso.datetime(),
  ended_at: z.iso.datetime(),
  files: z.array(file),
  /** The number of files whose bytes are in a bucket, and not in the backup. */
  in_buckets: bucketFiles,
});

export type BackupFile = z.output<typeof file>;
export type BackupManifest = z.output<typeof manifest>;

/**
 * The manifest of a backup. Throws a Refusal if the folder is no backup, its manifest is damaged, or of a version that
 * this one does not follow.
 */
export function readManifest(folder: string): BackupManifest {
  const path = join(folder, MANIFEST_FILE);
  if (!existsSync(path)) {
    throw new Refusal(EXIT.damaged, `${folder} is no backup, or an incomplete one: it has no ${MANIFEST_FILE}.`);
  }
  return parseManifest(readFileSync(path, "utf8"), path);
}

function parseManifest(text: string, path: string): BackupManifest {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw damaged(path);
  }
  const { format } = z.object({ format: z.int() }).catch({ format: FORMAT }).parse(value);
  checkFormat(format, `The backup ${path}`);
  const { data } = manifest.safeParse(value);
  if (!data) throw damaged(path);
  return data;
}

function damaged(path: string): Refusal {
  return new Refusal(EXIT.damaged, `${path} is damaged: it is not what \`backup\` has written.`);
}

/** Turns a folder with all its files into a backup, atomically. */
export async function writeManifest(folder: string, value: Omit<BackupManifest, "format">): Promise<void> {
  const path = join(folder, MANIFEST_FILE);
  const unfinished = `${path}.new`;
  await writeFile(unfinished, `${JSON.stringify({ format: FORMAT, ...value }, null, 1)}\n`, { mode: 0o600 });
  await makeDurable(unfinished);
  await rename(unfinished, path);
  await makeDurable(folder);
}

/** Waits until a file, or a folder's list of files, is on disk. */
export async function makeDurable(path: string): Promise<void> {
  const handle = await open(path, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** The SHA-256 of a file, hex. */
export async function sha256Of(path: string): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(path)) hash.update(chunk as Uint8Array);
  return hash.digest("hex");
}

/** Files whose bytes are in a bucket. */
export type BucketFiles = z.output<typeof bucketFiles>;

/** The files that the copy of a directory lists and whose bytes are in a bucket. */
export function filesInBuckets(path: string): BucketFiles {
  using database = openQuiet(path);
  const none = { files: 0, bytes: 0 };
  if (!database.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'file'").get()) return none;
  const count =
    "SELECT COUNT(*) AS files, IFNULL(SUM(bytes), 0) AS bytes FROM file WHERE body ->> '$.at' IN ('r2', 's3')";
  const row = database.prepare(count).get();
  return { files: Number(row?.files), bytes: Number(row?.bytes) };
}
