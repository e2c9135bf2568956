import { days, flag, integer, milliseconds, origins } from "./values.ts";
import { type Section, variable } from "./variable.ts";

/** No request of this size fits into a Worker's memory; a larger number is a typing error. */
const MAX_MAX_REQUEST_BYTES = 1024 ** 3;

/** How requests are accepted and answers are sent. */
export const serving = {
  title: "Requests and connections",
  variables: {
    maxRequestBytes: variable(
      "MAX_REQUEST_BYTES",
      integer(12 * 1024 * 1024, 1024, MAX_MAX_REQUEST_BYTES),
      "The largest body, before and after decompression (gzip, deflate, br, zstd). A body above 1 MiB may expand to 100 times its size.",
    ),
    /** Turns in one isolate, over all tenants. */
    maxOpenTurns: variable(
      "MAX_OPEN_TURNS",
      integer(200, 1),
      "How many turns one isolate runs at a time, of all tenants. A long prompt counts as several turns, and one tenant has three quarters of them at most. Beyond it: 503 or 429 with `retry-after`. `npm start` and `npm run serve` set 4,000 ([operations.md](../operations.md)).",
    ),
    /** In one process, as are the next two. */
    maxBackgroundRunsPerTenant: variable(
      "MAX_BACKGROUND_RUNS_PER_TENANT",
      integer(500, 1),
      "How many background responses of a tenant one process runs at a time; beyond it: 429.",
    ),
    maxOpenConversationsPerTenant: variable(
      "MAX_OPEN_CONVERSATIONS_PER_TENANT",
      integer(500, 1),
      "How many turns of a tenant may hold a conversation or wait for one, in one process; beyond it: 429.",
    ),
    maxWebSocketsPerTenant: variable(
      "MAX_WEBSOCKETS_PER_TENANT",
      integer(500, 1),
      "How many WebSockets a tenant may have open, in one process; beyond it: 429 with `retry-after`, before the upgrade.",
    ),
    corsOrigins: variable(
      "CORS_ORIGINS",
      origins(),
      "The origins whose pages may call this server from a browser, exact, such as `https://app.example.com`. Their keys are visible to whoever uses the page.",
    ),
    heartbeatMs: variable(
      "HEARTBEAT_MS",
      milliseconds(5_000, 10),
      "The interval of the SSE comments in a quiet stream.",
    ),
    /** White space before the JSON answer. */
    jsonHeartbeats: variable(
      "JSON_HEARTBEATS",
      flag,
      "`true` sends a line break at this interval before a JSON answer, which detects a client that has disconnected ([operations.md](../operations.md#when-the-client-leaves)).",
    ),
    speaksOpenResponses: variable(
      "OPEN_RESPONSES",
      flag,
      "`true` gives every client Open Responses' names of events, not only those that send `OpenResponses-Version` ([reasoning.md](../reasoning.md#open-responses)).",
    ),
    socketLifetimeMs: variable(
      "WEBSOCKET_LIFETIME_MS",
      milliseconds(3_600_000, 1),
      "The age at which a WebSocket is closed.",
    ),
    socketSendTimeoutMs: variable(
      "WEBSOCKET_SEND_TIMEOUT_MS",
      milliseconds(60_000, 1),
      "How long a WebSocket's client may read nothing before the socket is closed.",
    ),
  },
} satisfies Section;

/** Most runs that may live in a home: one in each of its trees. */
const MAX_TREES_PER_HOME = 64;

/** How long responses are stored, and how they are spread over Durable Objects. */
export const store = {
  title: "Storage",
  variables: {
    /** 0 stores responses for ever. */
    retentionMs: variable(
      "RETENTION_DAYS",
      days(30, 0),
      "The days after which a stored response is deleted. `0` keeps all.",
    ),
    unstoredRetentionMs: variable(
      "UNSTORED_RETENTION_MS",
      milliseconds(600_000, 1),
      "How long a background response with `store: false` can be read after its end. Then it is removed.",
    ),
    /** Conversation trees that begin in one home before the next one is used. */
    treesPerHome: variable(
      "TREES_PER_HOME",
      integer(32, 1, MAX_TREES_PER_HOME),
      "How many of a tenant's new conversation trees share a Durable Object, 1 to 64. Ids that were made with another value stay valid ([storage.md](../storage.md#homes)).",
    ),
    listsResponses: variable(
      "RESPONSE_INDEX",
      flag,
      "`true` lists the stored responses of each tenant: `GET /v1/responses`, and *Responses* of the console ([storage.md](../storage.md#the-list-of-responses)), and for the operator [the requests that have ended](../keys.md#ended-requests). `npm start` and `npm run serve` set it.",
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
      "The interval at which the events of a background run are written and sent while it has a reader. [cost.md](../cost.md) has the cost.",
    ),
    unreadLogIntervalMs: variable(
      "EVENT_LOG_UNREAD_INTERVAL_MS",
      milliseconds(4_000, 0),
      "The interval at which they are written without a reader.",
    ),
  },
} satisfies Section;
