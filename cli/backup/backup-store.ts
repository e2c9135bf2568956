import { readdirSync, statSync } from "node:fs";
import { link, mkdir, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { EXIT, Refusal, systemCode } from "../serve/refusal.ts";
import { type BackupFile, type BackupManifest, makeDurable, readManifest, writeManifest } from "./backup-manifest.ts";

/** The destination of a backup while it is made. */
export type BackupStore = Awaited<ReturnType<typeof folderStore>>;

/**
 * Makes the folder of a backup, which links the files that `earlier` has, so that they take no more disk space. Throws
 * a Refusal if the folder is not empty.
 */
export async function folderStore(folder: string, earlier: string | undefined) {
  const known = new Map(earlier ? readManifest(earlier).files.map((file) => [file.path, file]) : []);
  const wasThere = makeEmptyFolder(
    folder,
    await mkdir(folder, { recursive: true, mode: 0o700 }).catch(refuseTo(folder)),
  );
  return {
    /** The folder that files are copied into and checked in. */
    folder,
    /** The files of the earlier backup, by path. */
    known: known as ReadonlyMap<string, BackupFile>,
    /** Takes a file of the earlier backup into this one; false if that fails. */
    async reuse({ path, bytes }: BackupFile): Promise<boolean> {
      return earlier !== undefined && (await isLinked(join(earlier, path), join(folder, path), bytes));
    },
    /** Makes all files a backup, atomically. */
    async finish(manifest: Omit<BackupManifest, "format">): Promise<void> {
      const classes = new Set(manifest.files.map(({ path }) => dirname(path)));
      for (const name of classes) await makeDurable(join(folder, name));
      await writeManifest(folder, manifest);
    },
    /** Removes the parts of an incomplete backup. */
    async discard(): Promise<void> {
      const made = wasThere ? readdirSync(folder).filter((name) => name !== "lost+found") : [""];
      for (const name of made) await rm(join(folder, name), { recursive: true, force: true }).catch(() => {});
    },
  };
}

/** Tells whether the folder existed before; `made` is the first folder that had to be made. */
function makeEmptyFolder(folder: string, made: string | undefined): boolean {
  if (readdirSync(folder).some((name) => name !== "lost+found")) {
    throw new Refusal(EXIT.usage, `${folder} is not empty. A backup needs a folder of its own.`);
  }
  return made === undefined;
}

function refuseTo(folder: string) {
  return (error: unknown): never => {
    throw new Refusal(EXIT.noAccess, `The folder ${folder} cannot be made: ${systemCode(error)}.`);
  };
}

/** Links a file of an earlier backup; false if that fails. */
async function isLinked(from: string, to: string, bytes: number): Promise<boolean> {
  if (statSync(from, { throwIfNoEntry: false })?.size !== bytes) return false;
  try {
    await link(from, to);
    return true;
  } catch {
    // Another file system, or one without links.
    return false;
  }
}
