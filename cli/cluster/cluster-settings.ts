import { z } from "zod";
import { type Mistake, mistakeText, readSection, type Section, variable } from "../../src/config/variable.ts";
import { type Environment, readVariable } from "../configuration/environment.ts";

/** workerd refuses a shorter one. */
const MIN_KEY_BYTES = 32;
const KEY_EXPECTED = `expected at least ${MIN_KEY_BYTES} bytes (\`openssl rand -hex 32\` makes one)`;

const hostAndPort = z
  .string()
  .refine((address) => {
    const [, port] = /^(?:\[[0-9A-Fa-f:]+\]|[A-Za-z0-9.-]+):(\d{1,5})$/.exec(address) ?? [];
    return port !== undefined && Number(port) <= 65_535;
  }, "expected host:port")
  .optional();

/**
 * Several instances that serve the same objects, on one machine or many: workerd's own cluster mode, which is
 * experimental (docs/kubernetes.md). A bucket stores the objects, and the data folder is a cache. The environment has the
 * bucket's endpoint and credentials (`AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID` …), which workerd reads itself.
 */
export const clusterSection = {
  title: "A cluster of instances",
  variables: {
    bucket: variable(
      "CLUSTER_BUCKET",
      z
        .string()
        .regex(/^(s3|gs):\/\/[^/\s]+(\/\S*)?$/, "expected s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
        .optional(),
      "`s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`: `serve` is an instance of a cluster over this bucket. It is experimental; [kubernetes.md](../kubernetes.md#more-than-one-machine) says which variables the bucket itself needs.",
    ),
    address: variable(
      "CLUSTER_ADDRESS",
      hostAndPort,
      "The `host:port` at which the instance listens for the others. A public address is refused.",
    ),
    advertise: variable(
      "CLUSTER_ADVERTISE",
      hostAndPort,
      "The `host:port` at which the others reach the instance, if that is another one. Required where it listens on `0.0.0.0` or `[::]`.",
    ),
    key: variable(
      "CLUSTER_KEY",
      z
        .string()
        .refine((key) => Buffer.byteLength(key) >= MIN_KEY_BYTES, KEY_EXPECTED)
        .optional(),
      "Secret. At least 32 bytes, which are the same at all instances: `openssl rand -hex 32`. `CLUSTER_KEY_FILE` names a file with it.",
    ),
  },
} satisfies Section;

export type ClusterSettings = NonNullable<ReturnType<typeof readClusterSettings>>;

/** Reads the settings of a cluster; undefined without `CLUSTER_BUCKET`. Adds errors to `mistakes`. */
export function readClusterSettings(environment: Environment, mistakes: string[]) {
  if (!environment.CLUSTER_BUCKET) {
    const others = ["CLUSTER_ADDRESS", "CLUSTER_ADVERTISE", "CLUSTER_KEY", "CLUSTER_KEY_FILE"];
    mistakes.push(...others.filter((name) => environment[name]).map((name) => `CLUSTER_BUCKET: needed with ${name}`));
    return undefined;
  }
  const wrong: Mistake[] = [];
  const given = { ...environment, CLUSTER_KEY: readVariable("CLUSTER_KEY", environment, mistakes) };
  const { bucket = "", address = "", advertise, key = "" } = readSection(clusterSection, given, wrong);
  if (!environment.CLUSTER_ADDRESS) wrong.push(["CLUSTER_ADDRESS", "needed with CLUSTER_BUCKET (host:port)"]);
  if (!environment.CLUSTER_ADVERTISE && /^(0\.0\.0\.0|\[::\]):/.test(address)) {
    wrong.push([
      "CLUSTER_ADVERTISE",
      "needed, because CLUSTER_ADDRESS is every address: the one that the others reach",
    ]);
  }
  if (given.CLUSTER_KEY === undefined) wrong.push(["CLUSTER_KEY", KEY_EXPECTED]);
  mistakes.push(...wrong.map(mistakeText));
  return { bucket, address, advertise, key };
}
