import type { Grants, Policy } from "./grants.ts";

/** The limits of a caller that are counted: the grants of its tenant and of its key, of which some count something. */
export interface CountedLimits {
  tenant: Grants | null;
  key: Grants | null;
  /** Tells whether it is told what was used: not where nothing but the deployment's own limit of what is kept binds the caller. */
  tellsUsage: boolean;
}

/** The caller, as its key tells. Made once for what is known of a key, and shared by the requests that it makes. */
export interface Identity {
  tenant: string;
  /** Names the key in counters, usage and the audit log: the id of one, or where it is from. Never the key itself. */
  keyId: string;
  /** Undefined where nothing but the deployment's configuration binds the caller. */
  policy: Policy | undefined;
  /** Undefined where nothing is counted: such a caller costs no call. */
  counted: CountedLimits | undefined;
  /** The key id under which its things are stored; undefined where nothing counts what is stored. */
  storingKey: string | undefined;
}

/** Key ids of callers that the directory does not know. */
export const CONFIGURED_KEY = "configured";
export const JWT_KEY = "jwt";
export const NO_KEY = "none";
