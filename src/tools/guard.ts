import type { ToolConfig } from "../config.ts";
import { dohResolver, type GuardOptions } from "./guarded-fetch.ts";

/** What a request may have called: public https addresses, looked up where that is set up, and what is listed. */
export function guardOf({ isListed, dohUrl }: ToolConfig): Pick<GuardOptions, "allow" | "allowPublic" | "resolve"> {
  return {
    allow: isListed,
    allowPublic: true,
    ...(dohUrl !== undefined && { resolve: dohResolver(dohUrl) }),
  };
}
