import { days, integer, milliseconds } from "./values.ts";
import { type Section, variable } from "./variable.ts";

/** As many runs may live in a home: each tree of it can have one. */
const MAX_TREES_PER_HOME = 64;

/** What is kept, for how long, and how it is spread over Durable Objects. */
export const store = {
  title: "Storage",
  variables: {
    /** 0 keeps responses for ever. */
    retentionMs: variable(
      "RETENTION_DAYS",
      days(30, 0),
      "The days after which a stored response is deleted. `0` keeps all.",
    ),
    /** Conversation trees that begin in one home before the next one is used. */
    treesPerHome: variable(
      "TREES_PER_HOME",
      integer(32, 1, MAX_TREES_PER_HOME),
      "How many of a tenant's new conversation trees share a Durable Object, 1 to 64. Ids that were made with another value stay valid ([storage.md](../storage.md#homes)).",
    ),
    /** 0 does not wait. */
    conversationLockWaitMs: variable(
      "CONVERSATION_LOCK_WAIT_MS",
      milliseconds(10_000, 0),
      "How long a turn waits for its conversation before it is a 409 `conversation_locked`. `0` does not wait.",
    ),
    logIntervalMs: variable(
      "EVENT_LOG_INTERVAL_MS",
      milliseconds(400, 0),
      "The interval at which the events of a background run are written, and sent, while somebody reads them. [cost.md](../cost.md) says what that costs.",
    ),
    unreadLogIntervalMs: variable(
      "EVENT_LOG_UNREAD_INTERVAL_MS",
      milliseconds(4_000, 0),
      "The interval at which they are written while nobody reads them.",
    ),
  },
} satisfies Section;
