import { appendFile, lstat, open, readdir, realpath, rm, writeFile } from "node:fs/promises";
import { dirname, isAbsolute, join, relative } from "node:path";
import { z } from "zod";
import type { ToolResult } from "./tool-endpoint.ts";
import { ToolError } from "./tool-error.ts";

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

  constructor(directory: string, maxBytes: number) {
    this.#directory = directory;
    this.#maxBytes = maxBytes;
  }

  /**
   * Appends bytes to a file, or starts it anew. Throws a ToolError for a name outside the directory, and for a file
   * that is too large.
   */
  async write({ name, data, append }: z.output<typeof writtenPiece>): Promise<ToolResult> {
    const path = await this.#path(name, true);
    const bytes = Buffer.from(data, "base64");
    const before = append ? ((await lstat(path).catch(() => null))?.size ?? 0) : 0;
    if (before + bytes.length > this.#maxBytes) throw new ToolError(`A file has ${this.#maxBytes} bytes at most.`);
    await (append ? appendFile : writeFile)(path, bytes);
    return { text: `${name} has ${before + bytes.length} bytes.`, failed: false };
  }

  /** Reads bytes of a file: fewer than were asked for at its end. Throws a ToolError for a name that leads elsewhere, or to no file. */
  async read({ name, offset, length }: z.output<typeof wantedPiece>): Promise<ToolResult> {
    const file = await open(await this.#path(name, false), "r");
    try {
      const { bytesRead, buffer } = await file.read(Buffer.alloc(length), 0, length, offset);
      const structured = { data: buffer.subarray(0, bytesRead).toString("base64") };
      return { text: `${bytesRead} bytes.`, failed: false, structured };
    } finally {
      await file.close();
    }
  }

  /** Removes a file; one that does not exist is no fault. Throws a ToolError for a name that leads elsewhere. */
  async delete({ name }: z.output<typeof namedFile>): Promise<ToolResult> {
    await rm(await this.#path(name, true), { force: true });
    return { text: `${name} is removed.`, failed: false };
  }

  /** The files below the directory, by their paths. Hidden ones are left out, and Python's own. */
  async list(): Promise<Map<string, ListedFile>> {
    const files = new Map<string, ListedFile>();
    const look = async (directory: string, depth: number): Promise<void> => {
      const entries = await readdir(directory, { withFileTypes: true }).catch(() => []);
      for (const entry of entries) {
        if (files.size >= MAX_FILES || entry.name.startsWith(".") || entry.name === "__pycache__") continue;
        const path = join(directory, entry.name);
        if (entry.isDirectory() && depth < MAX_DEPTH) await look(path, depth + 1);
        if (!entry.isFile()) continue;
        const facts = await lstat(path, { bigint: true }).catch(() => null);
        const name = relative(this.#directory, path);
        if (!facts?.isFile() || name.length > 255) continue;
        files.set(name, { name, bytes: Number(facts.size), stamp: `${facts.ino} ${facts.mtimeNs} ${facts.size}` });
      }
    };
    await look(this.#directory, 0);
    return files;
  }

  /** A program's text with the real path of the directory, instead of the one that the model knows. */
  withOwnPath(code: string): string {
    return code.replaceAll(SHOWN_DIRECTORY, this.#directory);
  }

  /** A program's output with the path that the model knows. */
  withShownPath(output: string): string {
    return output.replaceAll(this.#directory, SHOWN_DIRECTORY);
  }

  async #path(name: string, creates: boolean): Promise<string> {
    const outside = new ToolError(`${JSON.stringify(name)} is no path of a file below the session's directory.`);
    const path = join(this.#directory, name);
    const below = relative(this.#directory, path);
    if (name.includes("\0") || isAbsolute(name) || below === "" || below.startsWith("..") || isAbsolute(below))
      throw outside;
    // A program may have replaced a directory, or the file, with a symbolic link.
    const base = await realpath(this.#directory);
    const real = await realpath(dirname(path)).catch(() => null);
    if (real === null || real !== join(base, dirname(below))) throw outside;
    const facts = await lstat(path).catch(() => null);
    if (facts ? !facts.isFile() : !creates) throw outside;
    return path;
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
