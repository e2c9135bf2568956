import type { Config } from "../../../config/index.ts";
import { BytesInBucket, r2Bucket } from "./bucket.ts";
import { s3Bucket } from "./s3-bucket.ts";

/** The buckets of a deployment: new files go to the first, older ones may be in any. */
export function configuredBuckets({ files: { r2, s3 } }: Pick<Config, "files">, tenant: string): BytesInBucket[] {
  return [
    ...(r2 ? [new BytesInBucket("r2", r2Bucket(r2), tenant)] : []),
    ...(s3 ? [new BytesInBucket("s3", s3Bucket(s3), tenant)] : []),
  ];
}
