import { list } from "@responses-edge/bounded-io/schemas/collections";
import { describedAs } from "@responses-edge/bounded-io/schemas/described-as";
import { z } from "zod";
import { MAX_ID_LENGTH } from "../ids.ts";
import { once } from "../items/shapes.ts";

/** Files in the API. */

/**
 * The purposes of uploaded files. The purpose restricts nothing: every file can be read, put into a store and given to
 * a model.
 */
export const PURPOSES = ["assistants", "batch", "fine-tune", "vision", "user_data", "evals"] as const;

/** The purposes of files that a program or a batch has written. */
export const filePurpose = z.enum([...PURPOSES, "assistants_output", "batch_output"]);

const MIN_EXPIRY_SECONDS = 3_600;
const MAX_EXPIRY_SECONDS = 2_592_000;

/** A number, also as a text, because forms have only texts. */
const seconds = describedAs(
  z.preprocess(
    (value) => (typeof value === "string" && /^\d{1,15}$/.test(value) ? Number(value) : value),
    z.int().min(MIN_EXPIRY_SECONDS).max(MAX_EXPIRY_SECONDS),
  ),
  () => z.int().min(MIN_EXPIRY_SECONDS).max(MAX_EXPIRY_SECONDS),
);

export const expiresAfter = z.object({ anchor: z.literal("created_at"), seconds });

/** The fields of a form beside its file. */
export const fileFields = z.object({ purpose: z.enum(PURPOSES), expires_after: expiresAfter.optional() });
export type FileFields = z.output<typeof fileFields>;

/** No file system has longer names. UTF-16 units. */
export const MAX_FILENAME_LENGTH = 255;

/** OpenAI's default for `batch`, in seconds: files with other purposes do not expire by default. */
const BATCH_EXPIRY_SECONDS = 2_592_000;

/** The expiry of a file created at `createdAt`, both in Unix seconds; null without one. */
export function expiryOf({ purpose, expires_after: after }: FileFields, createdAt: number): number | null {
  if (after) return createdAt + after.seconds;
  return purpose === "batch" ? createdAt + BATCH_EXPIRY_SECONDS : null;
}

export const fileObject = once(() =>
  z.object({
    id: z.string(),
    object: z.literal("file"),
    bytes: z.int().min(0),
    created_at: z.int().min(0).describe("Unix seconds."),
    expires_at: z.int().min(0).optional().describe("Unix seconds."),
    filename: z.string(),
    purpose: filePurpose,
    status: z.literal("processed"),
  }),
);
export type FileObject = z.output<ReturnType<typeof fileObject>>;

/** The maximum bytes of one part: OpenAI's 64 MB. */
export const MAX_PART_BYTES = 64 * 1024 * 1024;

/** The time in which an upload accepts parts. Seconds. */
export const UPLOAD_SECONDS = 3_600;

/** The maximum of parts of one call. */
const MAX_PART_IDS = 10_000;

export const createUploadBody = z.object({
  bytes: z.int().min(0),
  filename: z.string().min(1).max(MAX_FILENAME_LENGTH),
  mime_type: z.string().max(255),
  ...fileFields.shape,
});

export const completeUploadBody = z.object({
  part_ids: list(z.string().max(MAX_ID_LENGTH), { max: MAX_PART_IDS }),
  md5: z
    .string()
    .regex(/^[0-9A-Fa-f]{32}$/, "Expected an MD5 as 32 hexadecimal digits.")
    .nullish(),
});

export const uploadObject = once(() =>
  z.object({
    id: z.string(),
    object: z.literal("upload"),
    bytes: z.int().min(0),
    created_at: z.int().min(0).describe("Unix seconds."),
    expires_at: z.int().min(0).describe("Unix seconds."),
    filename: z.string(),
    purpose: z.enum(PURPOSES),
    status: z.enum(["pending", "completed", "cancelled", "expired"]),
    file: fileObject().nullable(),
  }),
);
export type UploadObject = z.output<ReturnType<typeof uploadObject>>;

export const uploadPartObject = once(() =>
  z.object({
    id: z.string(),
    object: z.literal("upload.part"),
    created_at: z.int().min(0).describe("Unix seconds."),
    upload_id: z.string(),
  }),
);
export type UploadPartObject = z.output<ReturnType<typeof uploadPartObject>>;
