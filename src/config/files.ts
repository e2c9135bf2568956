import { integer, milliseconds } from "./values.ts";
import { type Section, variable } from "./variable.ts";

const MIB = 1024 * 1024;

/** 8 GiB is the most that OpenAI takes in one upload. */
const MOST_BYTES = 8 * 1024 ** 3;

/** Files: what may be uploaded, and what a model gets to read of them. */
export const files = {
  title: "Files",
  variables: {
    maxFileBytes: variable(
      "MAX_FILE_BYTES",
      integer(512 * 1024 * 1024, 1024, MOST_BYTES),
      "The largest file that `/v1/files` takes; it is never in memory as a whole. Cloudflare takes bodies of 100 MB (Free, Pro), 200 MB (Business) or 500 MB (Enterprise); larger files go through `/v1/uploads` there.",
    ),
    maxReadBytes: variable(
      "INPUT_FILE_MAX_BYTES",
      integer(32 * MIB, 1024, 64 * MIB),
      "The largest file that is read for a model (`input_file`), in bytes. A larger one is a 400.",
    ),
    maxReadText: variable(
      "INPUT_FILE_MAX_TEXT",
      integer(4 * MIB, 1024, 8 * MIB),
      "The longest text that all files of one request may have together, in bytes.",
    ),
    maxReadPages: variable(
      "INPUT_FILE_MAX_PAGES",
      integer(2_000, 1, 10_000),
      "The most pages, slides or sheets of a file that is read for a model.",
    ),
    readTimeoutMs: variable(
      "INPUT_FILE_TIMEOUT_MS",
      milliseconds(30_000, 1_000),
      "How long a `file_url` may take to answer, to its last byte.",
    ),
    maxImageBytes: variable(
      "INPUT_IMAGE_MAX_BYTES",
      integer(8 * MIB, 1024, 10 * MIB),
      "The largest image that is given to a model by its `file_id`, in bytes. Its request keeps it.",
    ),
    /** Where a tenant's own limits do not say it; 0 is any number. */
    filesPerTenant: variable(
      "FILES_PER_TENANT",
      integer(0, 0),
      "The files that a tenant without its own `stored_files` may keep; `0` is any number. See [keys.md](../keys.md#limits).",
    ),
    bytesPerTenant: variable(
      "FILE_BYTES_PER_TENANT",
      integer(0, 0),
      "The bytes of files that a tenant without its own `stored_file_bytes` may keep; `0` is any number.",
    ),
  },
} satisfies Section;
