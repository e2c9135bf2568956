import { createHash } from "node:crypto";

/** What keeps tenants apart in the prefix caches of model servers. */

const salts = new Map<string, string>();

/**
 * The salt of a tenant's prompts at vLLM. With it nobody can time another tenant's prefix cache. A client's
 * own `cache_salt` parts the tenant's cache further.
 */
export function tenantCacheSalt(tenant: string, clientSalt?: string | null): string {
  if (clientSalt != null) return hashSalt(`${tenant}\n${clientSalt}`);
  // As many entries as there are tenants in the configuration.
  let salt = salts.get(tenant);
  if (salt === undefined) {
    salt = hashSalt(`${tenant}\n`);
    salts.set(tenant, salt);
  }
  return salt;
}

function hashSalt(text: string): string {
  return createHash("sha256").update(text).digest("base64url");
}
