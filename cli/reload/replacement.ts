import { statSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { markDataFolder } from "../serve/data-folder.ts";
import { readConfiguration } from "../serve/helper-process.ts";
import { installedFile, shippedBundle, version, workerd } from "../serve/installation.ts";
import { EXIT, Refusal } from "../serve/refusal.ts";
import { startWorker } from "../serve/worker-process.ts";

/** Starts a Worker that replaces another one, with the installed version. That version may be newer than the launcher. */

/**
 * A number that changes with the messages between launcher and Worker, and with the names of objects: another number
 * requires a restart.
 */
export const HAND_OVER_VERSION = 2;

export { markDataFolder, readConfiguration, startWorker, version };

type Replacement = Pick<
  typeof import("./replacement.ts"),
  "HAND_OVER_VERSION" | "markDataFolder" | "readConfiguration" | "startWorker" | "version"
>;

const own: Replacement = { HAND_OVER_VERSION, markDataFolder, readConfiguration, startWorker, version };

/** The file of the installed version when this program started. */
const ownFile = identityOf(installedFile("reload/replacement"));

/**
 * Loads the installed version. Throws a Refusal if that version cannot follow this one without a restart. Node never
 * forgets a module: a file is loaded only once, and this program's own version not again.
 */
export async function installedReplacement(): Promise<Replacement> {
  const file = installedFile("reload/replacement");
  const identity = identityOf(file);
  if (identity === ownFile) return own;
  const loaded = (await import(`${pathToFileURL(file).href}?file=${identity}`)) as Replacement;
  if (loaded.HAND_OVER_VERSION === HAND_OVER_VERSION) return loaded;
  throw new Refusal(EXIT.failed, `Version ${loaded.version} cannot follow ${version} without a restart.`);
}

/** Changes when an installation replaces the file; empty if there is none. */
function identityOf(file: string): string {
  const { ino, mtimeMs, size } = statSync(file, { throwIfNoEntry: false }) ?? {};
  return ino === undefined ? "" : `${ino}-${mtimeMs}-${size}`;
}

/** The files that an upgrade of the package replaces. A checkout has none: a change of its sources is no upgrade. */
export function installedFiles(): string[] {
  if (!shippedBundle) return [];
  return [process.argv[1] ?? "", installedFile("reload/replacement"), join(shippedBundle, "index.js"), workerd];
}
