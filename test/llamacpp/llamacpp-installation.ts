import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { root } from "../workerd/tools.ts";

/** A Python environment with llama.cpp's server in the wheel `xllamacpp`, and with `gguf` and `numpy`, which make the model. */
export interface Installation {
  python: string;
  /** A `llama-server` to run instead of the wheel's. */
  server?: string;
}

export const INSTALL = `Install one in a folder of your own, in seconds and without a GPU:
    python3 -m venv FOLDER && FOLDER/bin/pip install xllamacpp gguf numpy
    LLAMACPP_HOME=FOLDER npm run test:llamacpp
LLAMACPP_SERVER=/path/to/llama-server runs that one in place of the wheel's.`;

/** The folder of the Python scripts and the chat template. */
export const scripts = join(root, "test/llamacpp/models");

/** The folder of models and logs. git ignores it, and `npm ci` deletes it. */
export const cache = join(root, "node_modules/.cache/llamacpp-facts");

/** The environment that `LLAMACPP_HOME` names (a folder with `bin/python`). */
export function findInstallation(): Installation | undefined {
  const { LLAMACPP_HOME, LLAMACPP_SERVER } = process.env;
  if (!LLAMACPP_HOME) return;
  const python = join(LLAMACPP_HOME, "bin/python");
  if (!existsSync(python)) throw new Error(`LLAMACPP_HOME has no bin/python: ${LLAMACPP_HOME}. ${INSTALL}`);
  return { python, ...(LLAMACPP_SERVER ? { server: LLAMACPP_SERVER } : {}) };
}

/**
 * The speed of a model: immediate; or some milliseconds a token on one core, for kills in the middle of an answer.
 * `long` is immediate and has a window for agents' prompts.
 */
export type Pace = "fast" | "slow" | "long";

const SIZES: Record<Pace, [layers: number, width: number, window: number]> = {
  fast: [1, 256, 8_192],
  slow: [3, 16_384, 8_192],
  long: [1, 256, 65_536],
};

/** How a model is asked: as one that chats, or as a guard that judges the last message. */
export type Template = "chatml" | "guard";

/** The file of the scripted model. It is made at the first use, and again when its recipe has changed. */
export async function scriptedModel({ python }: Installation, pace: Pace, asked: Template): Promise<string> {
  const maker = join(scripts, "make_model.py");
  const template = join(scripts, `${asked}.jinja`);
  const hash = createHash("sha256").update(JSON.stringify(SIZES[pace]));
  for (const source of [maker, template]) hash.update(readFileSync(source));
  const file = join(cache, `${asked}-${pace}-${hash.digest("hex").slice(0, 12)}.gguf`);
  if (existsSync(file)) return file;
  mkdirSync(cache, { recursive: true });
  const unfinished = `${file}.unfinished`;
  await promisify(execFile)(python, [maker, template, unfinished, ...SIZES[pace].map(String)]);
  renameSync(unfinished, file);
  return file;
}
