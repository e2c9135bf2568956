import { readdirSync } from "node:fs";
import { join } from "node:path";
import { type Environment, readVariable } from "./environment.ts";
import { EXIT, Refusal } from "./refusal.ts";

/**
 * Several instances that serve the same objects, on one machine or many: workerd's own cluster mode, which is experimental
 * (docs/cluster.md). Objects are kept in a bucket, and the data folder is a cache. The bucket's endpoint and credentials
 * are those of the environment (`AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID` …), which workerd reads itself.
 */
export interface ClusterSettings {
  /** `s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`. */
  bucket: string;
  /** Where the instance listens for the others: `host:port`. */
  address: string;
  /** Where the others reach it, if that is not `address`. */
  advertise: string | undefined;
  /** What only the instances know. */
  key: string;
}

/** An instance, and how long it has to end. */
export interface ClusterInstance extends ClusterSettings {
  stopTimeoutMs: number;
}

const NAMES = ["CLUSTER_ADDRESS", "CLUSTER_ADVERTISE", "CLUSTER_KEY", "CLUSTER_KEY_FILE"] as const;

/** The variables that are read here. */
export const CLUSTER_VARIABLES: readonly string[] = ["CLUSTER_BUCKET", ...NAMES];

/** workerd takes no shorter one. */
const MIN_KEY_BYTES = 32;

/** What workerd leaves in the folder of each class whose objects are a cluster's. */
const CLUSTER_FILE = ".cluster";
/** Where an object is kept. */
const OBJECT_FILE = /^[0-9a-f]{64}\.sqlite$/;

/** Reads them; undefined without `CLUSTER_BUCKET`. Notes in `mistakes` what is wrong. */
export function readClusterSettings(environment: Environment, mistakes: string[]): ClusterSettings | undefined {
  const bucket = environment.CLUSTER_BUCKET;
  if (!bucket) {
    for (const name of NAMES) if (environment[name]) mistakes.push(`CLUSTER_BUCKET: needed with ${name}`);
    return undefined;
  }
  if (!/^(s3|gs):\/\/[^/\s]+(\/\S*)?$/.test(bucket)) {
    mistakes.push("CLUSTER_BUCKET: expected s3://BUCKET/PREFIX or gs://BUCKET/PREFIX");
  }
  const address = addressOf("CLUSTER_ADDRESS", environment, mistakes);
  if (address === undefined) mistakes.push("CLUSTER_ADDRESS: needed with CLUSTER_BUCKET (host:port)");
  const advertise = addressOf("CLUSTER_ADVERTISE", environment, mistakes);
  if (advertise === undefined && address && /^(0\.0\.0\.0|\[::\]):/.test(address)) {
    mistakes.push("CLUSTER_ADVERTISE: needed where CLUSTER_ADDRESS is every address: the one that others reach");
  }
  const key = readVariable("CLUSTER_KEY", environment, mistakes) ?? "";
  if (Buffer.byteLength(key) < MIN_KEY_BYTES) {
    mistakes.push(`CLUSTER_KEY: expected at least ${MIN_KEY_BYTES} bytes (\`openssl rand -hex 32\` makes one)`);
  }
  return { bucket, address: address ?? "", advertise, key };
}

function addressOf(name: string, environment: Environment, mistakes: string[]): string | undefined {
  const address = environment[name] || undefined;
  const [, port] = /^(?:\[[0-9A-Fa-f:]+\]|[A-Za-z0-9.-]+):(\d{1,5})$/.exec(address ?? "") ?? [];
  if (address !== undefined && (port === undefined || Number(port) > 65_535)) {
    mistakes.push(`${name}: expected host:port`);
  }
  return address;
}

/** The cluster as workerd's configuration has it. What runs in an object is cut off, and handed over, in half of `stopTimeoutMs`. */
export function clusterConfig({ bucket, address, advertise, key, stopTimeoutMs }: ClusterInstance): string {
  const advertised = advertise === undefined ? "" : `advertise = ${JSON.stringify(advertise)}, `;
  const addresses = `address = ${JSON.stringify(address)}, ${advertised}`;
  return `(bucket = ${JSON.stringify(bucket)}, ${addresses}key = ${JSON.stringify(key)}, stopTimeoutMs = ${stopTimeoutMs})`;
}

/**
 * Throws a Refusal where a data folder is a cluster's cache and `isCluster` is not so, or the other way round. What is in a
 * cache is old: another instance has gone on with it. And what a single server has kept is not taken into a bucket.
 */
export function checkKind(folder: string, isCluster: boolean): void {
  const classes = readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  for (const { name } of classes) {
    const files = readdirSync(join(folder, name));
    const isCache = files.includes(CLUSTER_FILE);
    if (isCache && !isCluster) {
      const how = "Set CLUSTER_BUCKET, or name another folder (STATE_DIRECTORY).";
      throw new Refusal(
        EXIT.configuration,
        `The data folder ${folder} is the cache of an instance of a cluster: the data is in its bucket. ${how}`,
      );
    }
    if (isCluster && !isCache && files.some((file) => OBJECT_FILE.test(file))) {
      throw new Refusal(
        EXIT.configuration,
        `The data folder ${folder} has what a single server kept, which a cluster does not take over. Name another folder (STATE_DIRECTORY).`,
      );
    }
  }
}
