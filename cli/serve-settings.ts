import { resolve } from "node:path";
import { z } from "zod";
import type { KeyPairFiles } from "./certificate.ts";
import { CLUSTER_VARIABLES, type ClusterSettings, readClusterSettings } from "./cluster.ts";
import type { Environment } from "./environment.ts";
import { LEAST_FREE, type LeastFree, leastFree } from "./free-disk.ts";
import type { LogFormat } from "./log-lines.ts";
import { EXIT, Refusal } from "./refusal.ts";

/** What `serve` itself reads of its environment (docs/self-hosting.md). The other variables are the Worker's. */
export interface ServeSettings {
  /** An address, or a name of one; `0.0.0.0` and `::` are all addresses. */
  host: string;
  /** 0 is any that is free. */
  port: number;
  /** Where responses, keys and counters are kept; absolute. */
  stateDirectory: string;
  /** What must be free on its file system, so that something new is stored. */
  leastFree: LeastFree;
  keyPair: KeyPairFiles | undefined;
  /** How long requests may take to end once the process is told to stop, in milliseconds. */
  stopTimeoutMs: number;
  logFormat: LogFormat;
  /** The cluster that it is an instance of; undefined for a server of its own. */
  cluster: ClusterSettings | undefined;
}

/** The longest timer: a later one rings at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

function number(minimum: number, maximum: number, fallback: number) {
  const expected = `expected a whole number from ${minimum} to ${maximum}`;
  return z
    .string()
    .regex(/^\d{1,10}$/, expected)
    .transform(Number)
    .refine((value) => value >= minimum && value <= maximum, expected)
    .default(fallback);
}

const SETTINGS = {
  HOST: z
    .string()
    .regex(/^[A-Za-z0-9.:-]+$/, "expected an address or a host's name")
    .default("127.0.0.1"),
  PORT: number(0, 65_535, 8787),
  STATE_DIRECTORY: z.string().default("data"),
  MIN_FREE_DISK: z
    .string()
    .regex(LEAST_FREE, "expected bytes, or a percentage such as 5%")
    .optional()
    .transform(leastFree),
  TLS_CERTIFICATE_FILE: z.string().optional(),
  TLS_KEY_FILE: z.string().optional(),
  // Kubernetes gives a pod 30 s.
  STOP_TIMEOUT_MS: number(0, MAX_TIMER_MS, 25_000),
  LOG_FORMAT: z.enum(["json", "text"], "expected json or text").optional(),
};

/** Their names. */
export const SERVE_VARIABLES: readonly string[] = [...Object.keys(SETTINGS), ...CLUSTER_VARIABLES];

/** How an environment wants lines, also one with mistakes. People have a terminal; what is piped is read by machines. */
export function logFormat({ LOG_FORMAT: format }: Environment): LogFormat {
  return format === "json" || format === "text" ? format : process.stdout.isTTY ? "text" : "json";
}

/** Reads them; notes in `mistakes` what is wrong. Throws a Refusal with them where none are given to be noted in. */
export function readServeSettings(environment: Environment, mistakes?: string[]): ServeSettings {
  const wrong = mistakes ?? [];
  const read = <Name extends keyof typeof SETTINGS>(name: Name): z.output<(typeof SETTINGS)[Name]> => {
    const schema: z.ZodType = SETTINGS[name];
    const result = schema.safeParse(environment[name] || undefined);
    if (!result.success) wrong.push(`${name}: ${result.error.issues[0]?.message}`);
    return (result.success ? result.data : schema.parse(undefined)) as z.output<(typeof SETTINGS)[Name]>;
  };
  const certificate = read("TLS_CERTIFICATE_FILE");
  const key = read("TLS_KEY_FILE");
  if (certificate && !key) wrong.push("TLS_KEY_FILE: needed with TLS_CERTIFICATE_FILE");
  if (key && !certificate) wrong.push("TLS_CERTIFICATE_FILE: needed with TLS_KEY_FILE");
  const settings: ServeSettings = {
    host: read("HOST"),
    port: read("PORT"),
    stateDirectory: resolve(read("STATE_DIRECTORY")),
    leastFree: read("MIN_FREE_DISK"),
    keyPair: certificate && key ? { certificateFile: resolve(certificate), keyFile: resolve(key) } : undefined,
    stopTimeoutMs: read("STOP_TIMEOUT_MS"),
    logFormat: logFormat({ LOG_FORMAT: read("LOG_FORMAT") }),
    cluster: readClusterSettings(environment, wrong),
  };
  if (!mistakes && wrong.length > 0) throw new Refusal(EXIT.configuration, ...wrong);
  return settings;
}
