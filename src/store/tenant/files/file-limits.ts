import { ApiError } from "@responses-edge/responses-api/errors";
import type { Config } from "../../../config/index.ts";
import type { FileLimit, FileLimits, Identity } from "../../../contract/grants.ts";

/** An amount of files, stored or to be stored. */
interface Amount {
  files: number;
  bytes: number;
}

/** The grants that name these limits. */
const GRANTS = { files: "stored_files", bytes: "stored_file_bytes" } as const;

/**
 * Applies the limits of a key and its tenant. To be called in the transaction that has added `wanted`, so that an error
 * rolls it back: the 429 of a limit that is reached, and the 413 of a file longer than the whole limit.
 */
export function checkFileLimits(
  { tenant, key }: FileLimits,
  totalOf: (owner: string | undefined) => Amount,
  owner: string,
  wanted: Amount,
): void {
  check(tenant, () => totalOf(undefined), wanted, "this organization");
  check(key, () => totalOf(owner), wanted, "this API key");
}

function check(limit: FileLimit, total: () => Amount, wanted: Amount, whose: string): void {
  if (limit.files === null && limit.bytes === null) return;
  const kept = total();
  for (const kind of ["files", "bytes"] as const) {
    const most = limit[kind];
    if (most === null || kept[kind] <= most) continue;
    throw new ApiError({
      status: wanted[kind] > most && most > 0 ? 413 : 429,
      type: "insufficient_quota",
      code: "storage_quota_exceeded",
      message: `You exceeded your storage quota: ${whose} may store ${most} ${kind === "files" ? "files" : "bytes of files"} ('${GRANTS[kind]}'), and this file would make it ${kept[kind]}. Delete files.`,
      headers: { "x-should-retry": "false" },
    });
  }
}

const NO_LIMIT = { files: null, bytes: null };

/** The limits of a caller's files: those of its key and its tenant, or else the deployment's. */
export function fileLimitsOf({ policy }: Identity, { files }: Config): FileLimits {
  const { tenant, key } = policy?.files ?? { tenant: NO_LIMIT, key: NO_LIMIT };
  const { filesPerTenant, bytesPerTenant } = files;
  return {
    tenant: { files: tenant.files ?? (filesPerTenant || null), bytes: tenant.bytes ?? (bytesPerTenant || null) },
    key,
  };
}
