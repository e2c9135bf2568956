import { once } from "node:events";
import { mkdtempSync, readdirSync, renameSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { systemCode } from "./refusal.ts";
import { LAUNCHER_SOCKET } from "./workerd.ts";

/**
 * Folders below the system's temporary folder, for the files that this program writes for a workerd. Each has a socket
 * on which the program listens as long as it lives, so that a later start finds the folders of killed programs. Process
 * ids would mean nothing where containers share the temporary folder.
 */

const PREFIX = "responses-edge-run-";

/** The socket of the program in its folder. */
const OWNER_SOCKET = "owner";

export interface ProcessFolder {
  /** Absolute. */
  path: string;
  /** Removes the folder. The end of this program does so, too. */
  remove(): void;
}

/** Makes a folder, which only this user may read, and removes those of killed programs. */
export async function makeProcessFolder(): Promise<ProcessFolder> {
  await removeLeftFolders();
  // It gets its name when its socket listens.
  const unnamed = mkdtempSync(join(tmpdir(), `.${PREFIX}`));
  const owner = createServer((socket) => socket.destroy()).listen(join(unnamed, OWNER_SOCKET));
  await once(owner, "listening");
  owner.unref();
  const path = join(tmpdir(), basename(unnamed).slice(1));
  renameSync(unnamed, path);
  const remove = () => {
    process.off("exit", remove);
    owner.close();
    rmSync(path, { recursive: true, force: true });
  };
  process.once("exit", remove);
  return { path, remove };
}

/** Removes the folders in which no program listens any more. */
async function removeLeftFolders(): Promise<void> {
  for (const name of readdirSync(tmpdir())) {
    if (!name.startsWith(PREFIX)) continue;
    const folder = join(tmpdir(), name);
    const sockets = await Promise.all([OWNER_SOCKET, LAUNCHER_SOCKET].map((each) => isLeft(join(folder, each))));
    if (sockets.every((isSocketLeft) => isSocketLeft)) rmSync(folder, { recursive: true, force: true });
  }
}

/** Tells whether a Unix socket is gone, or no process listens on it. Another user's socket cannot be checked. */
async function isLeft(path: string): Promise<boolean> {
  const socket = connect({ path });
  try {
    await once(socket, "connect");
    return false;
  } catch (error) {
    return ["ECONNREFUSED", "ENOENT", "ENOTDIR"].includes(systemCode(error));
  } finally {
    socket.destroy();
  }
}
