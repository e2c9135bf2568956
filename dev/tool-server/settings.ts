import { z } from "zod";

/** Every limit of the tool server, with its default. */
export const settingsSchema = z.strictObject({
  /** 0 takes a free one. */
  port: z.int().min(0).max(65_535).default(0),
  /** The key that callers send as `Authorization: Bearer`. Every process on this machine can reach the port. */
  apiKey: z.string().min(1),
  /** The interpreter: a command or a path. */
  python: z.string().min(1).default("python3"),
  /** Wall-clock time of one call. */
  timeoutMs: z.int().min(1).max(600_000).default(30_000),
  /** CPU time of one process: for an interpreter, over all its calls. */
  cpuSeconds: z.int().min(1).default(120),
  /** Address space of one process. */
  memoryMb: z.int().min(64).default(2048),
  /** Processes of one session at a time; threads do not count. */
  maxProcesses: z.int().min(1).default(64),
  /** One file. */
  maxFileMb: z.int().min(1).default(64),
  /** `bwrap` runs programs in a sandbox; `none` as the user of the server. */
  sandbox: z.enum(["none", "bwrap"]).default("none"),
  /** bubblewrap: a command or a path. */
  bwrap: z.string().min(1).default("bwrap"),
  /** The files of a session, and as much of `/tmp`; only in a sandbox. */
  maxDiskMb: z.int().min(1).default(256),
  /** The maximum output of one call: its beginning and its end are kept. */
  maxOutputBytes: z.int().min(256).default(262_144),
  /** The maximum number of sessions of one tool. Beyond it, the session that was idle longest is ended. */
  maxSessions: z.int().min(1).default(32),
  /** A session without calls is ended after this time. */
  idleMs: z.int().min(1).max(86_400_000).default(600_000),
});

export type Settings = z.output<typeof settingsSchema>;

/** The options that a caller may choose. */
export type ToolServerOptions = z.input<typeof settingsSchema>;

const VARIABLES: Record<keyof Settings, string> = {
  port: "PORT",
  apiKey: "TOOL_SERVER_API_KEY",
  python: "TOOL_PYTHON",
  timeoutMs: "TOOL_TIMEOUT_MS",
  cpuSeconds: "TOOL_CPU_SECONDS",
  memoryMb: "TOOL_MEMORY_MB",
  maxProcesses: "TOOL_MAX_PROCESSES",
  maxFileMb: "TOOL_MAX_FILE_MB",
  sandbox: "TOOL_SANDBOX",
  bwrap: "TOOL_BWRAP",
  maxDiskMb: "TOOL_MAX_DISK_MB",
  maxOutputBytes: "TOOL_MAX_OUTPUT_BYTES",
  maxSessions: "TOOL_MAX_SESSIONS",
  idleMs: "TOOL_IDLE_MS",
};

const TEXTS = new Set(["apiKey", "python", "sandbox", "bwrap"]);

/** The options that the environment sets, unchecked: `startToolServer` checks them. */
export function optionsFromEnvironment(environment: Record<string, string | undefined>): Partial<ToolServerOptions> {
  const options: Record<string, string | number> = {};
  for (const [name, variable] of Object.entries(VARIABLES)) {
    const value = environment[variable];
    if (value) options[name] = TEXTS.has(name) ? value : Number(value);
  }
  return options;
}
