/** A bucket of objects. Throws if the bucket does not answer correctly. */
export interface Bucket {
  put(name: string, bytes: Uint8Array): Promise<void>;
  /** Null if the object does not exist. */
  get(name: string): Promise<Uint8Array | null>;
  /** At most `LISTED` names with this prefix, in order, after a given one. */
  list(prefix: string, after: string): Promise<string[]>;
  remove(names: readonly string[]): Promise<void>;
}

/** S3 and R2 list this many objects at once, and R2 removes as many. */
export const LISTED = 1_000;
