import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

/** Clients that are too large to be dependencies. They are installed into the cache on first use. */

const run = promisify(execFile);

const cache = fileURLToPath(new URL("../../node_modules/.cache/clients/", import.meta.url));

/** The Codex CLI of npm. `CODEX` names another one. */
export async function installedCodex(version: string): Promise<string> {
  if (process.env.CODEX) return process.env.CODEX;
  const folder = `${cache}codex-${version}`;
  const binary = `${folder}/node_modules/.bin/codex`;
  if (!existsSync(binary)) {
    mkdirSync(folder, { recursive: true });
    await run("npm", ["install", "--no-save", "--prefix", folder, `@openai/codex@${version}`]);
  }
  return binary;
}

/** The clients of PyPI that are tested in one environment. */
export const PYTHON_PACKAGES = [
  "openai==3.54.0",
  "openai-agents==0.24.0",
  "langchain-openai==1.7.3",
  "websockets==16.1.1",
];

/** A Python with these packages of PyPI, such as `openai==3.54.0`. `PYTHON` names the one to begin with. */
export async function installedPython(name: string, ...packages: string[]): Promise<string> {
  const folder = `${cache}${name}-${createHash("sha256").update(packages.join()).digest("hex").slice(0, 8)}`;
  const python = `${folder}/bin/python`;
  if (!existsSync(python)) {
    await run(process.env.PYTHON ?? "python3", ["-m", "venv", folder]);
    await run(python, ["-m", "pip", "install", "--quiet", ...packages]);
  }
  return python;
}

/** A folder whose `node_modules` has these packages of npm, such as `@langchain/openai@1.6.0`. */
export async function installedPackages(name: string, ...packages: string[]): Promise<string> {
  const folder = `${cache}${name}-${createHash("sha256").update(packages.join()).digest("hex").slice(0, 8)}`;
  if (!existsSync(`${folder}/node_modules`)) {
    mkdirSync(folder, { recursive: true });
    await run("npm", ["install", "--no-save", "--prefix", folder, ...packages]);
  }
  return folder;
}
