import { createHash, randomBytes } from "node:crypto";
import { ROLES, readRole } from "../../src/config/roles.ts";
import { EXIT, Refusal } from "../serve/refusal.ts";

/** The parameters of `create-key`. */
export interface KeyRequest {
  /** The tenant, or the name of a root key in the audit log. */
  name: string;
  /** A root key of the admin API. */
  isAdmin: boolean;
  /** The role of a root key, as it is written in ADMIN_KEY; default: owner. */
  role?: string | undefined;
}

/** `create-key`: makes an API key and prints it with its entry for API_KEYS, or a root key with its entry for ADMIN_KEY. */
export function createKey({ name, isAdmin, role }: KeyRequest): void {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(name)) {
    throw new Refusal(EXIT.usage, "create-key needs a TENANT, or --admin NAME: letters, digits, _ and -, at most 64.");
  }
  if (role !== undefined && !(isAdmin && readRole(role))) {
    throw new Refusal(EXIT.usage, `--role goes with --admin, and is one of ${ROLES.join(", ")}:TENANT.`);
  }
  const variable = isAdmin ? "ADMIN_KEY" : "API_KEYS";
  const key = `${isAdmin ? "sk-admin" : "sk"}-${randomBytes(32).toString("base64url")}`;
  const sha256 = createHash("sha256").update(key).digest("hex");
  console.log(`Key, for the ${isAdmin ? "administrator" : "client"} (shown only now):\n  ${key}\n`);
  console.log(
    `Entry for ${variable} (separate several with commas):\n  ${name}:${sha256}${role === undefined ? "" : `:${role}`}\n`,
  );
  console.log(`Set it with: npx wrangler secret put ${variable}. Self-hosted: in the environment of \`serve\`.`);
}
