import { availableParallelism } from "node:os";
import { resolve } from "node:path";
import { describedAs } from "@responses-edge/bounded-io/schemas/described-as";
import { z } from "zod";
import { type Mistake, mistakeText, readSection, type Section, variable } from "../../src/config/variable.ts";
import { clusterSection, readClusterSettings } from "../cluster/cluster-settings.ts";
import { LEAST_FREE } from "../serve/free-disk.ts";
import { logFormat } from "../serve/log-lines.ts";
import { EXIT, Refusal } from "../serve/refusal.ts";
import { type ConfigFile, readConfigFile } from "./config-file.ts";
import type { Environment } from "./environment.ts";

/** The longest timer: a longer one fires at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** More cores than a machine of this kind has. */
const MAX_WORKERS = 256;

function number(minimum: number, maximum: number, fallback: number) {
  const expected = `expected a whole number from ${minimum} to ${maximum}`;
  return describedAs(
    z
      .string()
      .regex(/^\d{1,10}$/, expected)
      .transform(Number)
      .refine((value) => value >= minimum && value <= maximum, expected)
      .default(fallback),
    () => z.int().min(minimum).max(maximum).default(fallback),
  );
}

const WORKERS_EXPECTED = `expected a whole number from 1 to ${MAX_WORKERS}, or all`;
const workerCount = describedAs(
  z
    .string()
    .regex(/^(?:[1-9]\d{0,2}|all)$/, WORKERS_EXPECTED)
    .transform((text) => (text === "all" ? Math.min(availableParallelism(), MAX_WORKERS) : Number(text)))
    .refine((value) => value <= MAX_WORKERS, WORKERS_EXPECTED)
    .default(1),
  () => z.union([z.int().min(1).max(MAX_WORKERS), z.literal("all")]).default(1),
);

/** The variables that `serve` itself reads (docs/self-hosting.md). The other variables are the Worker's. */
const serveSection = {
  title: "The process",
  variables: {
    configFile: variable(
      "CONFIG_FILE",
      z.string().optional(),
      "A file in YAML, or in TOML (`.toml`), that sets these variables and those of the Worker, each by its name in lower case; it overrides the environment. Changes of the Worker's variables take effect within seconds ([self-hosting.md](../self-hosting.md#a-configuration-file)).",
    ),
    host: variable(
      "HOST",
      z
        .string()
        .regex(/^[A-Za-z0-9.:-]+$/, "expected an address or a host's name")
        .default("127.0.0.1"),
      "The address that the process listens on. `0.0.0.0` is every IPv4 address, `::` every address, `localhost` both loopback addresses.",
    ),
    port: variable("PORT", number(0, 65_535, 8787), "`0` takes a free port, which the first line of the log names."),
    stateDirectory: variable(
      "STATE_DIRECTORY",
      z.string().default("data"),
      "The data folder. `npm start` uses `.wrangler/state/v3/do` by default.",
    ),
    workers: variable(
      "WORKERS",
      workerCount,
      "How many processes of workerd serve, each on a core of its own, or `all` for as many as there are cores ([self-hosting.md](../self-hosting.md#all-cores)). Another number applies from the next start.",
    ),
    minFreeDisk: variable(
      "MIN_FREE_DISK",
      z.string().regex(LEAST_FREE, "expected bytes, or a percentage such as 5%").optional(),
      "The free space that the data folder's file system must have for new data: bytes or a percentage. Default: `5%`, at most 1 GB.",
    ),
    certificateFile: variable(
      "TLS_CERTIFICATE_FILE",
      z.string().optional(),
      "A PEM file with the certificate and its chain. The process then listens on https.",
    ),
    keyFile: variable("TLS_KEY_FILE", z.string().optional(), "A PEM file with the certificate's private key."),
    // Kubernetes gives a pod 30 s.
    stopTimeoutMs: variable(
      "STOP_TIMEOUT_MS",
      number(0, MAX_TIMER_MS, 25_000),
      "How long running requests may take to end when the process stops.",
    ),
    handOverTimeoutMs: variable(
      "HANDOVER_TIMEOUT_MS",
      number(0, MAX_TIMER_MS, 3_600_000),
      "How long a process that `reload` has replaced may take to end its work.",
    ),
    logFormat: variable(
      "LOG_FORMAT",
      z.enum(["json", "text"], "expected json or text").optional(),
      "`json` or `text`. Default: `text` on a terminal, else `json`.",
    ),
    authorities: variable(
      "NODE_EXTRA_CA_CERTS",
      z.string().optional(),
      "A PEM file with further certificate authorities, for a model server or another server behind a private one.",
    ),
  },
} satisfies Section;

/** The variables of the process in docs/reference/configuration.md. */
export const SERVE_SECTIONS: readonly Section[] = [serveSection, clusterSection];

/** Their names, and those of the variables with their files. */
export const SERVE_VARIABLES: readonly string[] = [
  ...SERVE_SECTIONS.flatMap(({ variables }) => Object.values(variables).map(({ name }) => name)),
  "CLUSTER_KEY_FILE",
];

/** Settings of a process: durations in milliseconds, paths absolute, `cluster` undefined for a single server. */
export type ServeSettings = ReturnType<typeof readServeSettings>;

/** The file of `CONFIG_FILE`; undefined without one. */
export function configFileOf({ CONFIG_FILE: path }: Environment): ConfigFile | undefined {
  return path ? readConfigFile(resolve(path), FILE_NAMES) : undefined;
}

/** The variables of the process that the file may set: it cannot name its own path. */
export const FILE_NAMES = SERVE_SECTIONS.flatMap(({ variables }) => Object.values(variables))
  .map(({ name }) => name)
  .filter((name) => name !== "CONFIG_FILE");

/**
 * Reads the settings and adds errors to `mistakes`. Without `mistakes` it throws a Refusal with them. The file
 * overrides the environment.
 */
export function readServeSettings(given: Environment, mistakes?: string[], file = configFileOf(given)) {
  const wrong: Mistake[] = [];
  const environment: Environment = { ...given, ...file?.variables };
  const values = readSection(serveSection, environment, wrong);
  const {
    host,
    port,
    workers,
    minFreeDisk,
    stopTimeoutMs,
    handOverTimeoutMs,
    certificateFile: certificate,
    keyFile: key,
  } = values;
  if (certificate && !key) wrong.push(["TLS_KEY_FILE", "needed with TLS_CERTIFICATE_FILE"]);
  if (key && !certificate) wrong.push(["TLS_CERTIFICATE_FILE", "needed with TLS_KEY_FILE"]);
  const told = wrong.map(mistakeText);
  const settings = {
    ...{ host, port, workers, minFreeDisk, stopTimeoutMs, handOverTimeoutMs },
    stateDirectory: resolve(values.stateDirectory),
    keyPair: certificate && key ? { certificateFile: resolve(certificate), keyFile: resolve(key) } : undefined,
    logFormat: logFormat({ LOG_FORMAT: values.logFormat }),
    cluster: readClusterSettings(environment, told),
  };
  if (settings.cluster && workers > 1) told.push("WORKERS: expected none in a cluster");
  if (!mistakes && told.length > 0) throw new Refusal(EXIT.configuration, ...told);
  mistakes?.push(...told);
  return settings;
}

/** The variables of the process that `npm start` reads. Its data folder has a default of its own. */
const startSection = {
  title: serveSection.title,
  variables: { port: serveSection.variables.port, minFreeDisk: serveSection.variables.minFreeDisk },
} satisfies Section;

/** Reads the settings of `npm start` and adds errors to `mistakes`. */
export function readStartSettings(environment: Environment, mistakes: string[]) {
  const wrong: Mistake[] = [];
  const settings = readSection(startSection, environment, wrong);
  mistakes.push(...wrong.map(mistakeText));
  return settings;
}
