import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

/** A model server that is run in a process group of its own. */
export interface Running {
  /** Waits until `url` is answered with 200. Throws if the process exits first, with the end of its log. */
  ready(url: string): Promise<void>;
  /** SIGTERM to the command itself, as a service manager would. */
  terminate(): void;
  /** The ids of its processes whose name contains this text. */
  processes(name: string): number[];
  /** SIGKILL to all of them. Resolves when they have ended. */
  kill(): Promise<void>;
}

export interface GroupCommand {
  /** Its name in messages. */
  name: string;
  command: string[];
  env: Record<string, string>;
  /** The file of its output. */
  log: string;
  /** The maximum time of its start. */
  startMs: number;
}

/**
 * Runs it below a shell that waits for the end of its standard input. When this process ends, the shell kills the
 * group.
 */
export async function runGroup({ name, command, env, log, startMs }: GroupCommand): Promise<Running> {
  const shell = spawn("sh", ["-c", '"$@" >>"$LOG" 2>&1 </dev/null & echo $!; read -r _; kill -9 0', "sh", ...command], {
    detached: true,
    stdio: ["pipe", "pipe", "ignore"],
    env: { ...process.env, ...env, LOG: log },
  });
  const group = shell.pid ?? 0;
  const pid = await firstLine(shell);
  const members = () => processesOf(group);
  return {
    async ready(url) {
      const deadline = Date.now() + startMs;
      for (;;) {
        if (!members().some((member) => member.pid === pid)) throw new Error(`${name} exited: ${log}`);
        if (await isServed(url)) return;
        if (Date.now() > deadline) throw new Error(`${name} did not come up in ${startMs / 1000} s: ${log}`);
        await pause(500);
      }
    },
    terminate: () => process.kill(pid, "SIGTERM"),
    processes: (part) => members().flatMap((member) => (member.name.includes(part) ? [member.pid] : [])),
    async kill() {
      if (members().length === 0) return;
      process.kill(-group, "SIGKILL");
      while (members().length > 0) await pause(50);
    },
  };
}

async function firstLine(child: ChildProcess): Promise<number> {
  if (!child.stdout) throw new Error("No standard output.");
  const [line] = (await once(createInterface(child.stdout), "line")) as [string];
  return Number(line);
}

/** The living processes of a group. */
function processesOf(group: number): { pid: number; name: string }[] {
  const lines = execFileSync("ps", ["-A", "-o", "pid=,pgid=,stat=,args="], { encoding: "utf8" }).split("\n");
  return lines.flatMap((line) => {
    const [, pid, pgid, state = "", name = ""] = /^\s*(\d+)\s+(\d+)\s+(\S+)\s+(.*)$/.exec(line) ?? [];
    return Number(pgid) === group && !state.startsWith("Z") ? [{ pid: Number(pid), name }] : [];
  });
}

async function isServed(url: string): Promise<boolean> {
  return fetch(url).then(
    async (answer) => {
      await answer.body?.cancel();
      return answer.ok;
    },
    () => false,
  );
}

/** Waits until no process listens on the port. */
export async function untilRefused(url: string): Promise<void> {
  const deadline = Date.now() + 60_000;
  const answers = () =>
    fetch(`${url}/health`).then(
      (answer) => answer.body?.cancel().then(() => true) ?? true,
      () => false,
    );
  while (await answers()) {
    if (Date.now() > deadline) throw new Error(`${url} still listens.`);
    await pause(100);
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
