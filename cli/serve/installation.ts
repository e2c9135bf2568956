import { existsSync, readFileSync, realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { EXIT, Refusal } from "./refusal.ts";

/**
 * The paths of this program's own files, in a checkout and in a package whose programs are bundled into one file. No
 * other module uses its own path.
 */

interface Manifest {
  name: string;
  version: string;
}

const MANIFEST = "package.json";

/** The folder of `package.json`: that of this file, or one above it. */
export const root = findRoot(dirname(fileURLToPath(import.meta.url)));

/** This program's version. */
export const { version } = readManifest(root);

/**
 * A folder with the Worker's bundle (`index.js`, and the data that it imports), which a package includes and a checkout
 * makes.
 */
export const shippedBundle = existsSync(join(root, "worker/index.js")) ? join(root, "worker") : undefined;

const require = createRequire(join(root, MANIFEST));

/** The path of workerd's binary, and its version, which `package.json` names. */
export const workerd = require("workerd").default as string;
export const workerdVersion = require("workerd").version as string;

/** The compatibility date and flags of wrangler.toml. Its strings and lists have the same form in Cap'n Proto. */
export function compatibility(): { date: string; flags: string } {
  const settings = readFileSync(join(root, "wrangler.toml"), "utf8");
  return { date: setting(settings, "compatibility_date"), flags: setting(settings, "compatibility_flags") };
}

/** The value of a setting, which has its own line. */
function setting(settings: string, name: string): string {
  const value = new RegExp(`^${name} = (.+)$`, "m").exec(settings)?.[1];
  if (value === undefined) throw new Error(`wrangler.toml has no ${name}.`);
  return value;
}

/** The folder of the `package.json` of this program that a folder is in. */
export function findRoot(folder: string): string {
  if (existsSync(join(folder, MANIFEST)) && readManifest(folder).name === "responses-edge") return folder;
  const above = dirname(folder);
  if (above === folder) throw new Error("This program is in no folder with its package.json.");
  return findRoot(above);
}

/**
 * The path of another program of this project, by its path in `cli` without an extension. In a package that is the one of the
 * installed version, which may be newer than this program: the command's path may lead to another folder than at the start.
 */
export function installedFile(name: string): string {
  if (shippedBundle) return join(findRoot(dirname(realpathSync(process.argv[1] ?? ""))), `${basename(name)}.js`);
  const extension = extname(import.meta.filename);
  return extension === ".ts"
    ? join(root, "cli", `${name}.ts`)
    : join(import.meta.dirname, `${basename(name)}${extension}`);
}

function readManifest(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, MANIFEST), "utf8")) as Manifest;
}

/** Throws a Refusal on a system without the Unix sockets by which the processes speak. */
export function checkPlatform(platform: NodeJS.Platform = process.platform): void {
  if (platform !== "win32") return;
  const how = "Run it in WSL (`wsl --install`), or as a container (docs/self-hosting.md).";
  throw new Refusal(EXIT.configuration, `responses-edge does not run on Windows itself: it needs Unix sockets. ${how}`);
}
