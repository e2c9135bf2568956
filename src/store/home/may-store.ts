import { ApiError } from "@responses-edge/responses-api/errors";
import type { Identity } from "../../contract/grants.ts";
import { checkDisk } from "../objects/process-state.ts";

/** Throws the 403 of a key whose tenant may store nothing here, and the 507 of a full disk. */
export function checkMayStore({ policy }: Identity): void {
  if (policy?.forceStoreFalse) {
    const message = "This API key does not allow storing anything.";
    throw new ApiError({ status: 403, message, code: "storage_not_allowed" });
  }
  checkDisk();
}
