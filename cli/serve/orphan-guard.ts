import { type ChildProcess, spawn } from "node:child_process";

/**
 * Kills the children of this process when this process is gone, also after SIGKILL, which allows no cleanup. A shell
 * beside it reads from a pipe that only this process holds, and so sees its end.
 */

/** One line for each target: `watch ID` or `forget ID`. */
const SCRIPT = `
watched=" "
while read -r action target; do
  case $action in
    watch) watched="$watched$target " ;;
    forget) watched="\${watched%% $target *} \${watched#* $target }" ;;
  esac
done
for target in $watched; do kill -s KILL -- "$target"; done 2>/dev/null
`;

/** The shell, while there is a child to watch. */
let guard: ChildProcess | undefined;
let watched = 0;

/** A process to kill with this one; with its whole `group` if it was started `detached`. */
export interface Watched {
  pid: number | undefined;
  group: boolean;
}

/** Has a child of this process killed with it; gives what to call when the child has ended. */
export function killWithUs({ pid, group }: Watched): () => void {
  if (pid === undefined) return () => {};
  const target = group ? -pid : pid;
  watched += 1;
  guard ??= start();
  guard.stdin?.write(`watch ${target}\n`);
  return () => {
    guard?.stdin?.write(`forget ${target}\n`);
    watched -= 1;
    if (watched > 0) return;
    guard?.stdin?.end();
    guard = undefined;
  };
}

function start(): ChildProcess {
  // In a group of its own, because Ctrl-C signals the terminal's group.
  const child = spawn("/bin/sh", ["-c", SCRIPT], { stdio: ["pipe", "ignore", "ignore"], detached: true });
  // Without a guard, children still end when this process stops in order.
  child.on("error", () => {});
  child.stdin?.on("error", () => {});
  child.unref();
  (child.stdin as unknown as { unref?: () => void } | null)?.unref?.();
  return child;
}
