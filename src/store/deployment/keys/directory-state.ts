import { ApiError } from "@responses-edge/responses-api/errors";
import type { Env } from "../../../env.ts";
import { KEYS_DAMAGED } from "../../objects/damage.ts";
import type { Stub } from "../../objects/objects.ts";

/** Remembers whether the directory of keys answers this process. Without it, no request with a key is served once its key is no longer cached. */

export type DirectoryState = "ok" | "unavailable" | "damaged";

let state: DirectoryState | undefined;

/** The outcome of the last question; undefined before the first one. */
export function directoryState(): DirectoryState | undefined {
  return state;
}

/** Asks the directory. Throws ApiError as it does, and the 503 if it cannot be asked. */
export async function askDirectory<T>(
  directories: Env["KEYS"],
  question: (directory: Stub<"KEYS">) => Promise<T>,
): Promise<T> {
  try {
    const answer = await question(directories.getByName());
    state = "ok";
    return answer;
  } catch (error) {
    state = error instanceof ApiError && error.code === KEYS_DAMAGED ? "damaged" : "unavailable";
    if (error instanceof ApiError) throw error;
    throw new ApiError({
      status: 503,
      message: "API keys cannot be looked up at the moment. Please retry in a few seconds.",
      code: "keys_unavailable",
      headers: { "retry-after": "2" },
    });
  }
}
