/** A bucket of objects. Throws where the bucket does not answer as it should. */
export interface Bucket {
  put(name: string, bytes: Uint8Array): Promise<void>;
  /** Null where there is no such object. */
  get(name: string): Promise<Uint8Array | null>;
  /** At most `LISTED` names that begin so, in order, after one of them. */
  list(prefix: string, after: string): Promise<string[]>;
  remove(names: readonly string[]): Promise<void>;
}

/** S3 and R2 list so many objects at a time, and R2 removes as many. */
export const LISTED = 1_000;
