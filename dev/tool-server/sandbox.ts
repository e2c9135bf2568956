import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import type { Settings } from "./settings.ts";

/**
 * The sandbox of a program: bubblewrap's namespaces without network, a read-only system, and a directory of bounded size. The kernel
 * must let this server mount: `main.ts` starts it in a namespace of its own.
 */

/** The directory of a session, as its programs see it. */
export const SESSION_DIRECTORY = "/mnt/data";

/** The place of `driver.py` in a sandbox. */
const DRIVER_IN_SANDBOX = "/run/driver.py";
const DRIVER = fileURLToPath(new URL("driver.py", import.meta.url));

/** Read-only parts of the system. Those below `/etc` name no user and have no secret. */
const SYSTEM = [
  "/usr",
  "/bin",
  "/sbin",
  "/lib",
  "/lib32",
  "/lib64",
  "/etc/alternatives",
  "/etc/ld.so.cache",
  "/etc/localtime",
  "/etc/ssl/certs",
];

/** The files of a session's directory. */
const MAX_INODES = 10_000;

/** The first user id of sessions; each has its own where the server is root of the machine. */
const FIRST_USER = 2_000_000;
const USERS = 1_000_000;

/** A session's directory on this machine, and the user of its programs. */
export interface SandboxedDirectory {
  readonly path: string;
  /** Undefined where the server has only its own user. */
  readonly user: number | undefined;
}

export class Sandbox {
  readonly #settings: Settings;
  readonly #parts: readonly string[];
  readonly #driver: string;
  readonly #isRoot = isRootOfMachine();
  #users = Math.floor(Math.random() * USERS);

  private constructor(settings: Settings, python: { path: string } | null, root: string) {
    this.#settings = settings;
    // The users of sandboxes may not reach the checkout.
    this.#driver = join(root, "driver.py");
    copyFileSync(DRIVER, this.#driver);
    chmodSync(this.#driver, 0o644);
    // A version manager has Python below a home directory.
    const prefix = python && dirname(dirname(python.path));
    this.#parts = prefix && !prefix.startsWith("/usr") ? [...SYSTEM, prefix] : SYSTEM;
  }

  /**
   * The sandbox of a server, whose files are below `root`, tried once. Throws an Error that says what is missing: bubblewrap, namespaces, mounts, or a Python that
   * programs can reach.
   */
  static start(settings: Settings, python: { path: string } | null, root: string): Sandbox {
    const sandbox = new Sandbox(settings, python, root);
    const directory = mkdtempSync(join(root, "try-"));
    const tried = sandbox.#mount(directory);
    try {
      const command = python ? [python.path, "-I", "-c", "print(1)"] : ["/bin/true"];
      const [program = "", ...args] = sandbox.wrap(command, tried, ".");
      execFileSync(program, args, { stdio: ["ignore", "pipe", "pipe"], env: {}, timeout: 30_000 });
    } finally {
      sandbox.unmount(directory);
      rmSync(directory, { recursive: true });
    }
    return sandbox;
  }

  /** Makes a directory one of bounded size, for the programs of one session. */
  mount(path: string): SandboxedDirectory {
    return this.#mount(path);
  }

  /** Empties a session's directory, and gives its memory back. */
  unmount(path: string): void {
    try {
      execFileSync("umount", ["--lazy", path], { stdio: "ignore" });
    } catch {
      // It is no mount any more.
    }
  }

  /** The command that runs another one in the sandbox, in a directory below the session's. */
  wrap(command: readonly string[], { path, user }: SandboxedDirectory, workdir: string): string[] {
    const { bwrap, maxDiskMb } = this.#settings;
    const asUser = ["setpriv", "--reuid", String(user), "--regid", String(user), "--clear-groups"];
    return [
      ...(user === undefined ? [] : asUser),
      bwrap,
      ...["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"],
      ...["--cap-drop", "ALL", "--uid", "65534", "--gid", "65534", "--hostname", "container"],
      ...this.#parts.flatMap((part) => ["--ro-bind-try", part, part]),
      ...["--ro-bind", this.#driver, DRIVER_IN_SANDBOX, "--proc", "/proc", "--dev", "/dev"],
      ...["--size", String(maxDiskMb * 1024 * 1024), "--tmpfs", "/tmp"],
      ...["--size", String(1024 * 1024), "--tmpfs", "/dev/shm"],
      ...["--bind", path, SESSION_DIRECTORY, "--remount-ro", "/", "--chdir", join(SESSION_DIRECTORY, workdir)],
      ...[
        "--setenv",
        "HOME",
        SESSION_DIRECTORY,
        "--setenv",
        "TMPDIR",
        "/tmp",
        "--setenv",
        "PATH",
        "/usr/local/bin:/usr/bin:/bin",
      ],
      "--",
      ...command,
    ];
  }

  /** The driver's path for a program. */
  get driver(): string {
    return DRIVER_IN_SANDBOX;
  }

  #mount(path: string): SandboxedDirectory {
    const user = this.#isRoot ? FIRST_USER + (this.#users++ % USERS) : undefined;
    const owner = user === undefined ? "" : `,uid=${user},gid=${user}`;
    const size = `size=${this.#settings.maxDiskMb}m,nr_inodes=${MAX_INODES},mode=700,nosuid,nodev${owner}`;
    execFileSync("mount", ["-t", "tmpfs", "-o", size, "tmpfs", path], { stdio: ["ignore", "ignore", "pipe"] });
    return { path, user };
  }
}

/** The path of a directory below a session's, relative to it. */
export const workdirIn = (base: string, directory: string): string => relative(base, directory) || ".";

/** Tells whether this process is the machine's root, and not that of a user's namespace. */
function isRootOfMachine(): boolean {
  if (process.getuid?.() !== 0) return false;
  const [inside, outside, length] = readFileSync("/proc/self/uid_map", "utf8").trim().split(/\s+/).map(Number);
  return inside === 0 && outside === 0 && (length ?? 0) > FIRST_USER + USERS;
}
