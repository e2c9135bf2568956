/** Roles of administrators: what each may do stands at every endpoint of the admin API (`src/http/admin.ts`). */

/** The one that may most comes first: of several roles a token has the first. */
export const ROLES = ["owner", "operator", "auditor", "tenant_admin"] as const;
export type Role = (typeof ROLES)[number];

/** The role of a root key: a tenant admin's names its tenant. */
export interface KeyRole {
  role: Role;
  tenant?: string;
}

/** Reads `auditor`, or `tenant_admin:acme`. Without a text it is the owner's; undefined of what is no role. */
export function readRole(text: string | undefined): KeyRole | undefined {
  const [name = "owner", tenant, ...rest] = text?.split(":") ?? [];
  const role = ROLES.find((each) => each === name);
  if (!role || rest.length > 0) return undefined;
  if (role !== "tenant_admin") return tenant === undefined ? { role } : undefined;
  return tenant !== undefined && /^(?:jwt\.)?[A-Za-z0-9_-]{1,64}$/.test(tenant) ? { role, tenant } : undefined;
}
