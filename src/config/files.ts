import { z } from "zod";
import type { Fetch, OperatorNetwork } from "./network.ts";
import { headerSecret, integer, milliseconds, serverUrl } from "./values.ts";
import { type Mistake, type Section, type ValuesOf, variable } from "./variable.ts";

const MIB = 1024 * 1024;

/** 8 GiB is the most that OpenAI takes in one upload. */
const MOST_BYTES = 8 * 1024 ** 3;

/** Files: how many may be uploaded, and how much of them a model gets to read. */
export const files = {
  title: "Files",
  variables: {
    maxFileBytes: variable(
      "MAX_FILE_BYTES",
      integer(512 * 1024 * 1024, 1024, MOST_BYTES),
      "The largest file that `/v1/files` accepts; no file is in memory as a whole. Cloudflare accepts bodies of 100 MB (Free, Pro), 200 MB (Business) or 500 MB (Enterprise); larger files go through `/v1/uploads` there.",
    ),
    maxReadBytes: variable(
      "INPUT_FILE_MAX_BYTES",
      integer(32 * MIB, 1024, 64 * MIB),
      "The largest file that is read for a model (`input_file`), in bytes. A larger one is a 400.",
    ),
    maxReadText: variable(
      "INPUT_FILE_MAX_TEXT",
      integer(4 * MIB, 1024, 8 * MIB),
      "The longest text of all files of one request together, in bytes.",
    ),
    maxReadPages: variable(
      "INPUT_FILE_MAX_PAGES",
      integer(2_000, 1, 10_000),
      "The maximum of pages, slides or sheets of a file that is read for a model.",
    ),
    pictures: variable(
      "INPUT_FILE_PICTURES",
      z.enum(["needed", "all", "none"]).default("needed"),
      'The pages of a PDF that a model which reads images is given as pictures, beside their text. `needed`: pages without text, and those with images or drawings; all of them where the request says `detail: "high"`. See [files.md](../files.md#pages-as-pictures).',
    ),
    maxPictures: variable(
      "INPUT_FILE_MAX_PICTURES",
      integer(10, 0, 100),
      "The maximum of pictures of pages in a request. The model is told which pages it is not shown.",
    ),
    ocrModel: variable(
      "OCR_MODEL",
      z.string().trim().min(1).optional(),
      "A model of the pool that reads images, by its server's name. It reads the text of scanned pages for models that do not, and for vector stores. See [files.md](../files.md#text-from-pictures).",
    ),
    maxOcrPages: variable(
      "OCR_MAX_PAGES",
      integer(50, 1, 10_000),
      "The maximum of scanned pages of a file that `OCR_MODEL` reads.",
    ),
    readTimeoutMs: variable(
      "INPUT_FILE_TIMEOUT_MS",
      milliseconds(30_000, 1_000),
      "How long a `file_url` may take to answer, to its last byte.",
    ),
    maxImageBytes: variable(
      "INPUT_IMAGE_MAX_BYTES",
      integer(8 * MIB, 1024, 10 * MIB),
      "The largest image by `file_id` in a request, in bytes.",
    ),
    /** Applies where a tenant's own limits do not say it; 0 is no limit. */
    filesPerTenant: variable(
      "FILES_PER_TENANT",
      integer(0, 0),
      "The maximum of files of a tenant without its own `stored_files`; `0` is no limit. See [keys.md](../keys.md#limits).",
    ),
    bytesPerTenant: variable(
      "FILE_BYTES_PER_TENANT",
      integer(0, 0),
      "The maximum of files' bytes of a tenant without its own `stored_file_bytes`; `0` is no limit.",
    ),
    containersPerTenant: variable(
      "CONTAINERS_PER_TENANT",
      integer(1_000, 1, 100_000),
      "The maximum of containers of a tenant that have not expired. See [tools.md](../tools.md#code).",
    ),
    s3Endpoint: variable(
      "FILES_S3_ENDPOINT",
      serverUrl.optional(),
      "The server of a bucket for the bytes of files, such as `https://s3.eu-central-1.amazonaws.com` or `http://minio:9000`. It needs the four variables below. Without it, and without the binding `FILES` to R2, the bytes are in the data folder, or in the objects' own rows ([files.md](../files.md#buckets)).",
    ),
    s3Bucket: variable(
      "FILES_S3_BUCKET",
      bucketName().optional(),
      "The bucket. It must exist, and only this deployment may use it.",
    ),
    s3Region: variable(
      "FILES_S3_REGION",
      headerSecret.default("us-east-1"),
      "The region in the signature of requests. MinIO accepts any.",
    ),
    s3AccessKeyId: variable(
      "FILES_S3_ACCESS_KEY_ID",
      headerSecret.optional(),
      "The id of the key that may list, read, write and delete objects of the bucket.",
    ),
    s3SecretAccessKey: variable("FILES_S3_SECRET_ACCESS_KEY", headerSecret.optional(), "Secret. The key itself."),
  },
} satisfies Section;

function bucketName() {
  return z
    .string()
    .trim()
    .regex(/^[A-Za-z0-9._-]{1,255}$/, "expected the name of a bucket");
}

type FileValues = ValuesOf<typeof files>;

/** The binding FILES: the methods of an R2 bucket that are used here. */
export interface R2Binding {
  put(name: string, bytes: Uint8Array): Promise<unknown>;
  get(name: string): Promise<{ arrayBuffer(): Promise<ArrayBuffer> } | null>;
  list(options: { prefix: string; limit: number; startAfter?: string }): Promise<{ objects: { key: string }[] }>;
  delete(names: string[]): Promise<void>;
}

/** A bucket at a server that speaks S3. */
export interface S3Config {
  endpoint: string;
  bucket: string;
  region: string;
  accessKeyId: string;
  secretAccessKey: string;
  fetch: Fetch;
}

/** The settings of files, and the buckets that store their bytes. */
export function fileConfig(values: FileValues, r2: R2Binding | undefined, network: OperatorNetwork) {
  const {
    s3Endpoint: endpoint,
    s3Bucket: bucket,
    s3Region: region,
    s3AccessKeyId,
    s3SecretAccessKey,
    ...rest
  } = values;
  const isNamed = endpoint !== undefined && bucket && s3AccessKeyId && s3SecretAccessKey;
  const key = { accessKeyId: s3AccessKeyId ?? "", secretAccessKey: s3SecretAccessKey ?? "" };
  const s3: S3Config | undefined = isNamed ? { endpoint, bucket, region, ...key, fetch: network.fetch } : undefined;
  return { ...rest, r2, s3 };
}

/** Checks that a bucket is named completely. */
export function fileMistakes({ s3Endpoint, s3Bucket, s3AccessKeyId, s3SecretAccessKey }: FileValues): Mistake[] {
  const parts = {
    FILES_S3_ENDPOINT: s3Endpoint,
    FILES_S3_BUCKET: s3Bucket,
    FILES_S3_ACCESS_KEY_ID: s3AccessKeyId,
    FILES_S3_SECRET_ACCESS_KEY: s3SecretAccessKey,
  };
  const missing = Object.entries(parts).filter(([, value]) => value === undefined);
  if (missing.length === Object.keys(parts).length) return [];
  return missing.map(([name]) => [name, "needed, because another variable of the bucket is set"]);
}
