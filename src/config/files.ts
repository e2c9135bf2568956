import { integer } from "./values.ts";
import { type Section, variable } from "./variable.ts";

/** 8 GiB is the most that OpenAI takes in one upload. */
const MOST_BYTES = 8 * 1024 ** 3;

/** Files: what may be uploaded. */
export const files = {
  title: "Files",
  variables: {
    maxFileBytes: variable(
      "MAX_FILE_BYTES",
      integer(512 * 1024 * 1024, 1024, MOST_BYTES),
      "The largest file that `/v1/files` takes; it is never in memory as a whole. Cloudflare takes bodies of 100 MB (Free, Pro), 200 MB (Business) or 500 MB (Enterprise); larger files go through `/v1/uploads` there.",
    ),
  },
} satisfies Section;
