import { spawn } from "node:child_process";
import { once } from "node:events";
import { untilReady } from "../workerd/tools.ts";
import type { Running } from "./facts.ts";

/** A program that serves at a URL. */
export interface Program {
  command: string;
  args: string[];
  /** Its whole environment. */
  environment: Record<string, string | undefined>;
  url: string;
}

/** Starts a program, and waits until it answers. It is killed when this process ends. `output` gives its whole output. */
export async function startProgram({
  command,
  args,
  environment,
  url,
}: Program): Promise<Running & { output(): string }> {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], env: environment });
  const exited = once(child, "close").then(([code]) => code as number | null);
  const kill = () => void child.kill("SIGKILL");
  process.once("exit", kill);
  let said = "";
  for (const output of [child.stdout, child.stderr]) output.on("data", (text) => (said += String(text)));
  try {
    await untilReady(child, `${url}/health`);
  } catch (error) {
    kill();
    throw new Error(`${command} did not start:\n${said}`, { cause: error });
  }
  return {
    url,
    output: () => said,
    stop() {
      child.kill("SIGTERM");
      return exited.finally(() => process.off("exit", kill));
    },
  };
}
