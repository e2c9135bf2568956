import type { McpAccess } from "@responses-edge/responses-api/tools";
import type { HeldLease } from "./conversation-lock.ts";
import type { ConversationTurns } from "./conversation-turns.ts";
import type { ReaderCount } from "./event-reader.ts";
import type { RunHost } from "./run-host.ts";

/** The time in which a turn that another process has in the conversation must open its socket again. Milliseconds. */
const RECONNECT_MS = 10_000;

/** The part of a home that its next process needs beside its rows. */
export interface CarriedHome {
  /** The access of its runs to MCP servers, by turn. */
  access: Record<string, Readonly<Record<string, McpAccess>>>;
  /** The foreground turn that holds the conversation. */
  lease: HeldLease | undefined;
  /** The last sequence numbers of readers, by their names. */
  readers: Record<string, number>;
}

interface Parts {
  runs: RunHost;
  conversation: ConversationTurns;
  readers: ReaderCount;
}

/** Ends the runs and readers of a home in memory. Gives what its next process needs of them; undefined if that is nothing. */
export async function carriedOf({ runs, conversation, readers }: Parts): Promise<CarriedHome | undefined> {
  const access = runs.freeze();
  const positions = await readers.stop();
  // The turn may have ended meanwhile.
  const lease = conversation.held();
  const isEmpty = !lease && [access, positions].every((each) => Object.keys(each).length === 0);
  return isEmpty ? undefined : { access, lease, readers: positions };
}

/**
 * Restores them, and resumes the runs. Resolves when the readers have gone on, and the foreground turn holds its conversation again or has
 * lost it: the object must not end before, because they are nowhere else.
 */
export async function restoreCarried(
  { runs, conversation, readers }: Parts,
  { access, lease, readers: positions }: CarriedHome,
): Promise<void> {
  const haveGoneOn = readers.restore(positions);
  if (lease) conversation.restore(lease);
  runs.resumeRuns(access);
  if (lease) {
    await scheduler.wait(RECONNECT_MS);
    conversation.loseUnlessOpen(lease.ticket);
  }
  await haveGoneOn;
}
