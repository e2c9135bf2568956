/** The bounds of a program. Each is far above what a model writes. */
export const BOUNDS = {
  /** UTF-16 units of the code. */
  codeLength: 100_000,
  /** Calls of a program, from its beginning to its end. */
  calls: 1_000,
  /** UTF-16 units of all calls' arguments, as JSON. */
  callLength: 1_000_000,
  /** UTF-16 units of all results, as JSON. */
  resultLength: 8_000_000,
  /** UTF-16 units of what it writes and returns. */
  outputLength: 200_000,
  /** Timers at one time. */
  timers: 1_000,
  /** Processor time of a step, where the platform bounds it (Cloudflare). Milliseconds. */
  cpuMs: 5_000,
} as const;

export type Bounds = { readonly [Name in keyof typeof BOUNDS]: number };
