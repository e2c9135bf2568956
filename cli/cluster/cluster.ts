import { readdirSync } from "node:fs";
import { join } from "node:path";
import { OBJECT_FILE } from "../backup/object-files.ts";
import { EXIT, Refusal } from "../serve/refusal.ts";
import type { ClusterSettings } from "./cluster-settings.ts";

/** An instance of a cluster, as workerd and its data folder have it. */

/** An instance, and its time to end in milliseconds. */
export interface ClusterInstance extends ClusterSettings {
  stopTimeoutMs: number;
}

/** The file that workerd leaves in the folder of each class with objects of a cluster. */
const CLUSTER_FILE = ".cluster";

/** The cluster as workerd's configuration has it. After half of `stopTimeoutMs` an object's work is cut off and handed over. */
export function clusterConfig({ bucket, address, advertise, key, stopTimeoutMs }: ClusterInstance): string {
  const advertised = advertise === undefined ? "" : `advertise = ${JSON.stringify(advertise)}, `;
  const addresses = `address = ${JSON.stringify(address)}, ${advertised}`;
  return `(bucket = ${JSON.stringify(bucket)}, ${addresses}key = ${JSON.stringify(key)}, stopTimeoutMs = ${stopTimeoutMs})`;
}

/**
 * Throws a Refusal if a data folder is a cluster's cache and `isCluster` is false, or the other way round. The data in
 * a cache is old, because another instance has changed the objects since. And the data of a single server would not get
 * into the bucket.
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
        `The data folder ${folder} has the data of a single server, which a cluster cannot use. Name another folder (STATE_DIRECTORY).`,
      );
    }
  }
}
