import type { McpAccess } from "@responses-edge/responses-api/tools";
import type { HeldLease } from "./conversation-lock.ts";
import type { ConversationTurns } from "./conversation-turns.ts";
import type { RunHost } from "./run-host.ts";

/** The time in which a turn that another process has in the conversation must open its socket again. Milliseconds. */
const RECONNECT_MS = 10_000;

/** The part of a home that its next process needs beside its rows. */
export interface CarriedHome {
  /** The access of its runs to MCP servers, by turn. */
  access: Record<string, Readonly<Record<string, McpAccess>>>;
  /** The foreground turn that holds the conversation. */
  lease: HeldLease | undefined;
}

interface Parts {
  runs: RunHost;
  conversation: ConversationTurns;
}

/** Ends the runs of a home in memory. Gives what its next process needs of them; undefined if that is nothing. */
export function carriedOf({ runs, conversation }: Parts): CarriedHome | undefined {
  const access = runs.freeze();
  const lease = conversation.held();
  return lease || Object.keys(access).length > 0 ? { access, lease } : undefined;
}

/**
 * Restores them, and resumes the runs. Resolves when the foreground turn holds its conversation again, or has lost it:
 * the object must not end before, because the lease is nowhere else.
 */
export async function restoreCarried({ runs, conversation }: Parts, { access, lease }: CarriedHome): Promise<void> {
  if (lease) conversation.restore(lease);
  runs.resumeRuns(access);
  if (!lease) return;
  await scheduler.wait(RECONNECT_MS);
  conversation.loseUnlessOpen(lease.ticket);
}
