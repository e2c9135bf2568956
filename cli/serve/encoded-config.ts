import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { closeSync, openSync } from "node:fs";
import { open, readFile, rm, writeFile } from "node:fs/promises";
import { endOf } from "./child-end.ts";
import { withFiles } from "./embedded-files.ts";
import { workerd } from "./installation.ts";
import type { LogFormat } from "./log-lines.ts";
import { EXIT, Refusal } from "./refusal.ts";

/**
 * workerd's configuration in Cap'n Proto's encoding, with the bundle in it. A process that parses the text keeps the memory that
 * parsing took for as long as it runs: 53 of 192 MB (docs/benchmarks-results.md).
 */

/** A string, or an embedded file with its path, in the text of a configuration. */
const EMBEDDED = /(embed )?("(?:[^"\\]|\\.)*")/g;

/**
 * Encodes a configuration, by a process of workerd that ends with that. workerd encodes short names in the place of embedded
 * files: it would write the files in pieces of a few bytes, and need as long for that as a process for its start.
 *
 * @param text As `workerdConfig` makes it. Its paths are absolute.
 * @param file The path of the encoded file, which only this user may read.
 * @param signal Aborting it kills the process.
 * @throws Refusal (exit code 1) if workerd does not take the configuration; `say` has got its reasons.
 */
export async function encodeConfig(
  text: string,
  file: string,
  { format, say, signal }: { format: LogFormat; say(line: string): void; signal?: AbortSignal | undefined },
): Promise<void> {
  const paths = new Map<string, string>();
  const named = text.replaceAll(EMBEDDED, (whole, embed?: string, path = "") => {
    if (embed === undefined) return whole;
    const name = randomUUID();
    paths.set(name, JSON.parse(path));
    return JSON.stringify(name);
  });
  const textFile = `${file}.capnp`;
  await writeFile(textFile, named, { mode: 0o600 });
  const encoded = await open(file, "w", 0o600);
  try {
    const args = ["compile", "--config-only", "--import-path=/", textFile];
    const child = spawn(workerd, args, { stdio: ["ignore", encoded.fd, "pipe"], detached: true, env: {} });
    const kill = () => void child.kill("SIGKILL");
    signal?.addEventListener("abort", kill);
    const code = await endOf(child, format, say).finally(() => signal?.removeEventListener("abort", kill));
    signal?.throwIfAborted();
    if (code !== 0) throw new Refusal(EXIT.failed, "workerd refuses its configuration.");
    await withFiles(await readFile(file), paths, encoded);
  } finally {
    await encoded.close();
    await rm(textFile, { force: true });
  }
}

/**
 * Starts workerd with an encoded configuration as its standard input: it keeps one copy of what it reads there, and three of a file
 * that it opens itself. The file is not needed any more after that.
 *
 * @param file As `encodeConfig` has written it.
 * @param args Further arguments.
 * @param outputs Standard output and error, and further descriptors.
 */
export function spawnServing(
  file: string,
  args: readonly string[],
  outputs: readonly StdioEntry[],
  options: Omit<SpawnOptions, "stdio"> & { isExperimental?: boolean },
): ChildProcess {
  const { isExperimental = false, ...others } = options;
  const input = openSync(file, "r");
  try {
    const serve = ["serve", "--binary", ...(isExperimental ? ["--experimental"] : []), "-"];
    return spawn(workerd, [...serve, ...args], { ...others, stdio: [input, ...outputs] });
  } finally {
    closeSync(input);
  }
}

/** The other end of a descriptor of a process. */
type StdioEntry = "pipe" | "ignore" | "inherit" | number;
