/** The exit codes of this program: those of `sysexits.h`, where one fits (docs/self-hosting.md). */
export const EXIT = {
  /** Ended in order. */
  ok: 0,
  /** The Worker's process has ended, or never answered. */
  failed: 1,
  /** An unknown command, argument or option. */
  usage: 64,
  /** A backup, or a file of the data folder, is damaged or incomplete. */
  damaged: 65,
  /** The address is not available: another program listens there. */
  address: 69,
  /** The data folder is in use. */
  busy: 75,
  /** The data folder cannot be written. */
  noAccess: 77,
  /** An error in the configuration, or a data folder of a newer version: a restart does not help. */
  configuration: 78,
} as const;

/** The reasons why this program refuses a command, one per line. None contains a secret. */
export class Refusal extends Error {
  override readonly name = "Refusal";
  readonly exitCode: number;
  readonly lines: readonly string[];

  constructor(exitCode: number, ...lines: readonly string[]) {
    super(lines.join("\n"));
    this.exitCode = exitCode;
    this.lines = lines;
  }
}

/** The system's code of a failed call, such as `ENOSPC`; else the error's message. */
export function systemCode(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = "code" in error && typeof error.code === "string" ? error.code : undefined;
  return code === undefined || code.startsWith("ERR_") ? error.message : code;
}
