import type { Caller } from "./transport.ts";

/**
 * Notes where something is kept for a tenant that wants that known (`track_homes`), so that all of it can be exported and
 * erased. A home that this isolate has noted lately is not noted again.
 */

/** How long a note is believed to be there: less than for how long an erasure keeps it. */
const NOTED_MS = 600_000;
const MAX_NOTED = 10_000;

/** When homes were noted, Unix milliseconds; oldest first. */
const noted = new Map<string, number>();

/** Undefined where there is nothing to note. Rejects where it cannot be noted: then nothing may be kept there. */
export function noteHome({ identity, tenant, quotas }: Caller, home: string): Promise<void> | undefined {
  if (!identity.policy?.tracksHomes) return undefined;
  const name = `${tenant}:${home}`;
  const now = Date.now();
  const age = now - (noted.get(name) ?? Number.NEGATIVE_INFINITY);
  return age >= 0 && age < NOTED_MS ? undefined : note(name, () => quotas.getByName(tenant).noteHome(home));
}

async function note(name: string, tell: () => Promise<void>): Promise<void> {
  const at = Date.now();
  await tell();
  noted.delete(name);
  noted.set(name, at);
  if (noted.size <= MAX_NOTED) return;
  const oldest = noted.keys().next().value;
  if (oldest !== undefined) noted.delete(oldest);
}
