import { mkdtemp, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Bucket, LISTED } from "../../src/store/tenant/files/object-bucket.ts";
import { s3Bucket } from "../../src/store/tenant/files/s3-bucket.ts";
import { type Environment, readVariable } from "../configuration/environment.ts";
import { EXIT, Refusal, systemCode } from "../serve/refusal.ts";
import { type BackupFile, type BackupManifest, manifestText, parseManifest } from "./backup-manifest.ts";
import { keptOf, STAMP } from "./backup-stamp.ts";
import type { BackupStore } from "./backup-store.ts";

/**
 * Backups in a bucket with S3's API. A file is stored once, however many backups have it:
 * - `PREFIX/files/SHA256/0`, `…/1`, …: the pieces of a file, named by its content.
 * - `PREFIX/backups/STAMP.json`: the manifest of a backup, which is written last.
 * One backup at a time writes below a prefix: at the end of a backup, pieces that no manifest names are removed.
 */

const ADDRESS = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/([A-Za-z0-9._/-]+))?$/;

/** The bytes that one request sends, within its time limit. */
const PIECE_BYTES = 8 * 1024 * 1024;

/** The number of attempts of a request, and the wait between them in milliseconds. */
const TRIES = 3;
const BETWEEN_TRIES_MS = 500;

/** Tells whether the operator's destination of a backup is in a bucket. */
export function isInBucket(place: string): boolean {
  return place.startsWith("s3://");
}

/** The backups below a prefix. */
export class BackupBucket {
  readonly #bucket: Bucket;
  readonly #prefix: string;
  /** Its address, for people. */
  readonly name: string;

  /**
   * Takes `s3://BUCKET/PREFIX`. The environment names its server and key (`AWS_ENDPOINT_URL`, `AWS_REGION`,
   * `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`). Throws a Refusal if one is missing.
   */
  constructor(address: string, environment: Environment) {
    const [, bucket, prefix] = ADDRESS.exec(address) ?? [];
    if (!bucket) throw new Refusal(EXIT.usage, `${address} is no address of a bucket: expected s3://BUCKET/PREFIX.`);
    const mistakes: string[] = [];
    const read = (name: string) => readVariable(name, environment, mistakes);
    const region = read("AWS_REGION") ?? "us-east-1";
    const accessKeyId = read("AWS_ACCESS_KEY_ID") ?? "";
    const secretAccessKey = read("AWS_SECRET_ACCESS_KEY") ?? "";
    const sessionToken = read("AWS_SESSION_TOKEN");
    if (!accessKeyId) mistakes.push("AWS_ACCESS_KEY_ID: needed for a bucket");
    if (!secretAccessKey) mistakes.push("AWS_SECRET_ACCESS_KEY: needed for a bucket");
    if (mistakes.length > 0) throw new Refusal(EXIT.configuration, ...mistakes);
    const endpoint = read("AWS_ENDPOINT_URL") ?? `https://s3.${region}.amazonaws.com`;
    const key = { accessKeyId, secretAccessKey, ...(sessionToken && { sessionToken }) };
    this.#bucket = s3Bucket({ endpoint, bucket, region, ...key, fetch });
    this.#prefix = prefix ? `${prefix.replace(/\/+$/, "")}/` : "";
    this.name = address;
  }

  /** The stamps of the backups, oldest first. */
  async stamps(): Promise<string[]> {
    const names = await this.#list("backups/");
    return names.map((name) => name.slice("backups/".length).replace(/\.json$/, "")).filter((name) => STAMP.test(name));
  }

  async manifest(stamp: string): Promise<BackupManifest> {
    const name = `backups/${stamp}.json`;
    const bytes = await this.#ask((bucket) => bucket.get(this.#prefix + name));
    if (!bytes) throw new Refusal(EXIT.damaged, `${this.name} has no backup ${stamp}.`);
    return parseManifest(new TextDecoder().decode(bytes), `${this.name}/${name}`);
  }

  /** The files of which pieces are missing. */
  async missing(files: readonly BackupFile[]): Promise<BackupFile[]> {
    const there = new Set(await this.#list("files/"));
    return files.filter((file) => !piecesOf(file).every((piece) => there.has(piece)));
  }

  /** Writes a file of a backup to `to`. A checksum finds bytes that are missing. */
  async download(file: BackupFile, to: string): Promise<void> {
    await using target = await open(to, "wx", 0o600);
    for (const piece of piecesOf(file)) {
      const bytes = await this.#ask((bucket) => bucket.get(this.#prefix + piece));
      if (!bytes) return;
      await target.writeFile(bytes);
    }
  }

  /** Where a backup is made: files are copied into a temporary folder, sent, and removed there. */
  async store(stamp: string): Promise<BackupStore> {
    const last = (await this.stamps()).at(-1);
    const known = last === undefined ? [] : (await this.manifest(last)).files;
    const there = new Set(await this.#list("files/"));
    const isThere = (file: BackupFile) => piecesOf(file).every((piece) => there.has(piece));
    const folder = await mkdtemp(join(tmpdir(), "responses-edge-backup-"));
    const discard = () => rm(folder, { recursive: true, force: true });
    return {
      folder,
      known: new Map(known.map((file) => [file.path, file])),
      reuse: async (file) => isThere(file),
      keep: async (file) => {
        const path = join(folder, file.path);
        if (!isThere(file)) await this.#upload(path, file);
        // A class's list is written after its objects' copies, so that nothing reads these any more.
        await rm(path);
      },
      finish: async (manifest) => {
        const gone = await this.missing(manifest.files);
        if (gone.length > 0) throw new Error("another backup has removed files of this one");
        const bytes = new TextEncoder().encode(manifestText(manifest));
        await this.#ask((bucket) => bucket.put(`${this.#prefix}backups/${stamp}.json`, bytes));
        await discard();
      },
      discard,
    };
  }

  /**
   * Removes all backups but the newest `keep`, and the pieces that no other backup has. Gives the stamps of the removed
   * backups.
   */
  async prune(keep: number): Promise<string[]> {
    const { kept, removed } = keptOf(await this.stamps(), keep);
    // A backup ends with its manifest, before its files are removed.
    await this.#remove(removed.map((stamp) => `backups/${stamp}.json`));
    const used = new Set<string>();
    for (const stamp of kept) {
      for (const file of (await this.manifest(stamp)).files) for (const piece of piecesOf(file)) used.add(piece);
    }
    await this.#remove((await this.#list("files/")).filter((piece) => !used.has(piece)));
    return removed;
  }

  async #upload(path: string, file: BackupFile): Promise<void> {
    await using source = await open(path, "r");
    for (const piece of piecesOf(file)) {
      const buffer = new Uint8Array(Math.min(PIECE_BYTES, file.bytes));
      let length = 0;
      for (let read = -1; read !== 0 && length < buffer.length; length += read) {
        ({ bytesRead: read } = await source.read(buffer, length, buffer.length - length));
      }
      await this.#ask((bucket) => bucket.put(this.#prefix + piece, buffer.subarray(0, length)));
    }
  }

  /** All names that begin so, without the prefix, in order. */
  async #list(beginning: string): Promise<string[]> {
    const all: string[] = [];
    for (let after = ""; ; ) {
      const names = await this.#ask((bucket) => bucket.list(this.#prefix + beginning, after));
      for (const name of names) all.push(name.slice(this.#prefix.length));
      after = names.at(-1) ?? "";
      if (names.length < LISTED) return all;
    }
  }

  #remove(names: readonly string[]): Promise<void> {
    return this.#ask((bucket) => bucket.remove(names.map((name) => this.#prefix + name)));
  }

  /** Throws a Refusal if the bucket's answer is an error. */
  async #ask<T>(question: (bucket: Bucket) => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await question(this.#bucket);
      } catch (error) {
        if (tries < TRIES) await new Promise((resolve) => setTimeout(resolve, BETWEEN_TRIES_MS * tries));
        else throw new Refusal(EXIT.noAccess, `${this.name} does not answer as it should: ${systemCode(error)}.`);
      }
    }
  }
}

/** The names of a file's pieces. */
function piecesOf({ sha256, bytes }: BackupFile): string[] {
  const count = Math.max(1, Math.ceil(bytes / PIECE_BYTES));
  return Array.from({ length: count }, (_, piece) => `files/${sha256}/${piece}`);
}
