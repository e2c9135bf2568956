import { flag, integer, milliseconds } from "./values.ts";
import { type Section, variable } from "./variable.ts";

/** No request of this size fits into a Worker's memory; a larger number is a slip of the pen. */
const MAX_MAX_REQUEST_BYTES = 1024 ** 3;

/** How requests are taken and answers are sent. */
export const serving = {
  title: "Requests and connections",
  variables: {
    maxRequestBytes: variable(
      "MAX_REQUEST_BYTES",
      integer(12 * 1024 * 1024, 1024, MAX_MAX_REQUEST_BYTES),
      "The largest body, before and after decompression (gzip, deflate, br, zstd). A body above 1 MiB may expand to 100 times its size.",
    ),
    /** Turns in one isolate, of all tenants. */
    maxOpenTurns: variable(
      "MAX_OPEN_TURNS",
      integer(200, 1),
      "How many turns one isolate runs at a time, of all tenants. A long prompt counts as several turns, and one tenant has three quarters of them at most. Beyond it: 503 or 429 with `retry-after`. `npm start` and `npm run serve` set 4,000 ([operations.md](../operations.md)).",
    ),
    /** In one process, as the next two. */
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
    heartbeatMs: variable(
      "HEARTBEAT_MS",
      milliseconds(5_000, 10),
      "The interval of the SSE comments in a quiet stream.",
    ),
    /** White space before the JSON. */
    jsonHeartbeats: variable(
      "JSON_HEARTBEATS",
      flag(),
      "`true` sends a line break at this interval before a JSON answer, so that a client that leaves is noticed ([operations.md](../operations.md#when-the-client-leaves)).",
    ),
    speaksOpenResponses: variable(
      "OPEN_RESPONSES",
      flag(),
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
