import { constants, existsSync, type Stats } from "node:fs";
import { type FileHandle, lstat, open, readdir, rm } from "node:fs/promises";
import { isAbsolute, join, relative } from "node:path";
import { z } from "zod";
import type { ToolResult } from "./tool-endpoint.ts";
import { ToolError } from "./tool-error.ts";

const { O_APPEND, O_CREAT, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_TRUNC, O_WRONLY } = constants;

/** The directory that a model expects: gpt-oss was trained with it. */
const SHOWN_DIRECTORY = "/mnt/data";

/** The files that are listed, and the directories above each. */
const MAX_FILES = 1_000;
const MAX_DEPTH = 8;

/** The bytes of one piece. */
const MAX_PIECE_BYTES = 1024 * 1024;

const name = z.string().min(1).max(255).describe("Its path below the session's directory");

export const writtenPiece = z.object({
  name,
  data: z.base64().describe("Its bytes, or those of the piece"),
  append: z.boolean().default(false).describe("Whether the piece goes to its end"),
});

export const wantedPiece = z.object({
  name,
  offset: z.int().min(0),
  length: z.int().min(1).max(MAX_PIECE_BYTES),
});

export const namedFile = z.object({ name });

/** A file: its path, its length, and a value that changes when it is written. */
type ListedFile = { name: string; bytes: number; stamp: string };

/** The files of a session. No name leads out of its directory, and no symbolic link is followed. */
export class SessionFiles {
  readonly #directory: string;
  readonly #maxBytes: number;
  readonly #isShown: boolean;

  /** `isShown`: programs see the directory under the path that a model expects. */
  constructor(directory: string, maxBytes: number, isShown: boolean) {
    this.#directory = directory;
    this.#isShown = isShown;
    this.#maxBytes = maxBytes;
  }

  /**
   * Appends bytes to a file, or starts it anew. Throws a ToolError for a name outside the directory, and for a file
   * that is too large.
   */
  async write({ name, data, append }: z.output<typeof writtenPiece>): Promise<ToolResult> {
    const bytes = Buffer.from(data, "base64");
    const how = O_WRONLY | O_CREAT | (append ? O_APPEND : O_TRUNC);
    return await this.#withFile(name, how, async (file, { size }) => {
      const length = Number(size) + bytes.length;
      if (length > this.#maxBytes) throw new ToolError(`A file has ${this.#maxBytes} bytes at most.`);
      // The file is the program's, whose user may be another one.
      const { uid, gid } = await lstat(this.#directory);
      await file.chown(uid, gid).catch(() => {});
      await file.appendFile(bytes);
      return { text: `${name} has ${length} bytes.`, failed: false };
    });
  }

  /** Reads bytes of a file: fewer than were asked for at its end. Throws a ToolError for a name that leads elsewhere, or to no file. */
  async read({ name, offset, length }: z.output<typeof wantedPiece>): Promise<ToolResult> {
    return await this.#withFile(name, O_RDONLY, async (file) => {
      const { bytesRead, buffer } = await file.read(Buffer.alloc(length), 0, length, offset);
      const structured = { data: buffer.subarray(0, bytesRead).toString("base64") };
      return { text: `${bytesRead} bytes.`, failed: false, structured };
    });
  }

  /** Removes a file; one that does not exist is no fault. Throws a ToolError for a name that leads elsewhere. */
  async delete({ name }: z.output<typeof namedFile>): Promise<ToolResult> {
    await this.#inParent(name, (path) => rm(path, { force: true }));
    return { text: `${name} is removed.`, failed: false };
  }

  /** The files below the directory, by their paths. Hidden ones are left out, and Python's own. */
  async list(): Promise<Map<string, ListedFile>> {
    const files = new Map<string, ListedFile>();
    const look = async (at: string, below: string, depth: number): Promise<void> => {
      const entries = await readdir(at, { withFileTypes: true }).catch(() => []);
      for (const entry of entries) {
        if (files.size >= MAX_FILES || entry.name.startsWith(".") || entry.name === "__pycache__") continue;
        const name = join(below, entry.name);
        if (entry.isDirectory() && depth < MAX_DEPTH) {
          await inDirectory(join(at, entry.name), (inner) => look(inner, name, depth + 1)).catch(() => {});
        }
        if (!entry.isFile()) continue;
        const facts = await lstat(join(at, entry.name), { bigint: true }).catch(() => null);
        if (!facts?.isFile() || name.length > 255) continue;
        files.set(name, { name, bytes: Number(facts.size), stamp: `${facts.ino} ${facts.mtimeNs} ${facts.size}` });
      }
    };
    await inDirectory(this.#directory, (at) => look(at, "", 0)).catch(() => {});
    return files;
  }

  /** A program's text with the real path of the directory, instead of the one that the model knows. */
  withOwnPath(code: string): string {
    return this.#isShown ? code : code.replaceAll(SHOWN_DIRECTORY, this.#directory);
  }

  /** A program's output with the path that the model knows. */
  withShownPath(output: string): string {
    return this.#isShown ? output : output.replaceAll(this.#directory, SHOWN_DIRECTORY);
  }

  /** Opens a file by its name, for a function. Throws a ToolError for a name that leads elsewhere, or to no file. */
  async #withFile<T>(name: string, how: number, use: (file: FileHandle, facts: Stats) => Promise<T>): Promise<T> {
    return await this.#inParent(name, async (path) => {
      // A pipe would wait for its other end.
      const file = await open(path, how | O_NOFOLLOW | O_NONBLOCK).catch(() => null);
      if (file === null) throw outside(name);
      try {
        const facts = await file.stat();
        if (!facts.isFile()) throw outside(name);
        return await use(file, facts);
      } finally {
        await file.close();
      }
    });
  }

  /** Calls a function with the path of a name in its opened directory, which no program can replace meanwhile. */
  async #inParent<T>(name: string, use: (path: string) => Promise<T>): Promise<T> {
    const below = relative(this.#directory, join(this.#directory, name));
    if (name.includes("\0") || isAbsolute(name) || below === "" || below.startsWith("..") || isAbsolute(below)) {
      throw outside(name);
    }
    const parts = below.split("/");
    const leaf = parts.pop() ?? "";
    const walk = (at: string, [part, ...others]: string[]): Promise<T> =>
      inDirectory(at, (opened) => (part === undefined ? use(join(opened, leaf)) : walk(join(opened, part), others)));
    try {
      return await walk(this.#directory, parts);
    } catch (error) {
      throw error instanceof ToolError ? error : outside(name);
    }
  }
}

const outside = (name: string) =>
  new ToolError(`${JSON.stringify(name)} is no path of a file below the session's directory.`);

const HAS_PROC = existsSync("/proc/self/fd");

/**
 * Opens a directory, which is no symbolic link, and gives a function its path: by its descriptor where there is /proc. A program may replace a directory
 * with a symbolic link at any time.
 */
async function inDirectory<T>(path: string, use: (path: string) => Promise<T>): Promise<T> {
  const directory = await open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  try {
    return await use(HAS_PROC ? `/proc/self/fd/${directory.fd}` : path);
  } finally {
    await directory.close();
  }
}

/** The files that are new, or were written, between two listings. */
export function changedFiles(
  before: ReadonlyMap<string, ListedFile>,
  after: ReadonlyMap<string, ListedFile>,
): { name: string; bytes: number }[] {
  const isChanged = ({ name, stamp }: ListedFile) => before.get(name)?.stamp !== stamp;
  return [...after.values()].filter(isChanged).map(({ name, bytes }) => ({ name, bytes }));
}
