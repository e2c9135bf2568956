import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { followLines, type LogFormat } from "./log-lines.ts";
import { killWithUs } from "./orphan-guard.ts";
import { EXIT, Refusal } from "./refusal.ts";

/**
 * Gives a workerd's exit code when it has ended and all its output was read; null if it was killed. It is killed when this
 * process ends, in any way. Rejects with a Refusal if it does not start.
 */
export async function endOf(
  child: ChildProcess,
  format: LogFormat,
  say: (line: string) => void,
): Promise<number | null> {
  const forget = killWithUs({ pid: child.pid, group: false });
  const kill = () => void child.kill("SIGKILL");
  process.once("exit", kill);
  const said = [child.stdout, child.stderr].map((output) => output && followLines(output, format, say));
  try {
    const [[code]] = await Promise.all([once(child, "exit") as Promise<[number | null]>, ...said]);
    return code;
  } catch (error) {
    throw new Refusal(EXIT.failed, `workerd does not start: ${error instanceof Error ? error.message : error}.`);
  } finally {
    process.off("exit", kill);
    forget();
  }
}
