/** Roles of administrators. Each endpoint of the admin API lists its roles (`src/http/admin.ts`). */

/** Ordered by rights, most first: a token with several roles has the first of them. */
export const ROLES = ["owner", "operator", "auditor", "tenant_admin"] as const;
export type Role = (typeof ROLES)[number];

/** The role of a root key. A tenant admin's names its tenant. */
export interface KeyRole {
  role: Role;
  tenant?: string;
}

/** Reads `auditor`, or `tenant_admin:acme`. Without a text the role is owner; undefined for an unknown role. */
export function readRole(text: string | undefined): KeyRole | undefined {
  const [name = "owner", tenant, ...rest] = text?.split(":") ?? [];
  const role = ROLES.find((each) => each === name);
  if (!role || rest.length > 0) return undefined;
  if (role !== "tenant_admin") return tenant === undefined ? { role } : undefined;
  return tenant !== undefined && /^(?:jwt\.)?[A-Za-z0-9_-]{1,64}$/.test(tenant) ? { role, tenant } : undefined;
}
