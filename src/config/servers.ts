import { describedAs } from "@responses-edge/bounded-io/schemas/described-as";
import { DIALECT_NAMES } from "@responses-edge/engines/dialects/dialect";
import { TRANSPORTS } from "@responses-edge/engines/settings";
import { z } from "zod";
import { upstreamSecretsText, upstreamsText } from "./server-entry.ts";
import { flag, headerSecret, integer, milliseconds, serverUrl } from "./values.ts";
import { type Section, type ValuesOf, variable } from "./variable.ts";

/** The model servers: their addresses and timeouts. */

const loadFactor = describedAs(
  z
    .string()
    .regex(/^\d{1,4}(\.\d{1,4})?$/, "expected a number such as 1.5")
    .transform(Number)
    .refine((factor) => factor >= 1, "expected at least 1")
    .default(1.5),
  () => z.number().min(1).max(9999).default(1.5),
);

export const servers = {
  title: "Model servers",
  variables: {
    baseUrl: variable(
      "VLLM_BASE_URL",
      serverUrl.optional(),
      "vLLM's URL, which ends in `/v1`. A service binding named `VLLM` can replace it, such as a Workers VPC service for a private GPU.",
    ),
    apiKey: variable("VLLM_API_KEY", headerSecret.optional(), "Secret. vLLM's `--api-key`."),
    transport: variable(
      "VLLM_TRANSPORT",
      z.enum(TRANSPORTS).default("fetch"),
      "`socket` opens a TCP connection for each request, which makes tokens cheaper. `mixed` does so for streams of tokens only. `npm start` and `npm run serve` set `mixed` for a URL with `http://`. See [operations.md](../operations.md#transport-to-the-model-server).",
    ),
    dialect: variable(
      "UPSTREAM_DIALECT",
      z.enum(DIALECT_NAMES).optional(),
      "The kind of model servers without a `dialect` in `UPSTREAMS`: `vllm`, `llamacpp`, `sglang`, `ollama`, or `openai` for any other. Without it the gateway recognises each server by its answers ([model-servers.md](../model-servers.md)).",
    ),
    upstreams: variable(
      "UPSTREAMS",
      upstreamsText.optional(),
      'JSON: several model servers instead of one, such as `[{"name":"gpu-1","url":"http://gpu-1:8000/v1"},{"binding":"GPU_2","weight":2}]`. [fleet.md](../fleet.md) lists the fields.',
    ),
    upstreamSecrets: variable(
      "UPSTREAM_SECRETS",
      upstreamSecretsText.optional(),
      'Secret. JSON: keys and further headers of the servers, by name: `{"gpu-1":{"api_key":"…","headers":{"cf-access-client-id":"…"}}}`.',
    ),
    /** The highest multiple of the mean of an isolate's requests that one of several servers gets. */
    loadFactor: variable(
      "UPSTREAM_LOAD_FACTOR",
      loadFactor,
      "With several servers, an isolate gives none of them more than this multiple of the average load.",
    ),
    failoverMs: variable(
      "UPSTREAM_FAILOVER_MS",
      milliseconds(10_000, 1),
      "How long a request waits for response headers before it goes to another free server.",
    ),
    maxInFlight: variable(
      "UPSTREAM_MAX_IN_FLIGHT",
      integer(0, 0),
      "Most requests for answers in progress at each model server without `max_in_flight` in `UPSTREAMS`. More wait in the gateway, where tenants take turns ([fleet.md](../fleet.md#fair-sharing)). `0` sets no limit.",
    ),
    maxWaiting: variable(
      "UPSTREAM_MAX_WAITING",
      integer(1_000, 1),
      "Most requests that wait for each saturated model server, in each process. Further ones are a 429 or 503 with `retry-after`.",
    ),
    boardMs: variable(
      "UPSTREAM_BOARD_MS",
      milliseconds(0, 0),
      "The interval at which one Durable Object checks several servers for all isolates ([fleet.md](../fleet.md)). `0` disables this; `10000` is a good value.",
    ),
    unsaltedServers: variable(
      "UNSALTED_SERVERS",
      z.enum(["auto", "warn", "refuse"]).default("auto"),
      "The treatment of a model server that does not separate tenants, if there may be several tenants. `warn` logs it; `refuse` sends it no prompt and answers 503. `auto` refuses kinds of servers that share their cache (llama.cpp, Ollama) unless `UPSTREAMS` accepts that, and warns about the others ([fleet.md](../fleet.md#tenants-at-a-server)).",
    ),
    showsUpstream: variable(
      "SHOW_UPSTREAM",
      flag,
      "`true` adds the header `x-upstream` to answers, which names the answering server.",
    ),
    connectTimeoutMs: variable(
      "VLLM_CONNECT_TIMEOUT_MS",
      milliseconds(30_000, 1),
      "The longest wait for vLLM's response headers.",
    ),
    firstByteTimeoutMs: variable(
      "VLLM_FIRST_BYTE_TIMEOUT_MS",
      milliseconds(300_000, 1),
      "The longest wait from the headers to the first byte, during which vLLM queues and prefills.",
    ),
    idleTimeoutMs: variable(
      "VLLM_IDLE_TIMEOUT_MS",
      milliseconds(60_000, 1),
      "The longest pause between two reads of a stream.",
    ),
    silenceMs: variable(
      "VLLM_SILENCE_MS",
      milliseconds(5_000, 1),
      "After a pause this long the gateway checks vLLM's `/health`.",
    ),
    maxRetries: variable(
      "VLLM_MAX_RETRIES",
      integer(10, 0),
      "How often a generation that broke off is resumed in each round of a turn. `0` lets it fail.",
    ),
    recoveryTimeMs: variable(
      "VLLM_RECOVERY_TIME_MS",
      milliseconds(900_000, 0),
      "How long a background run waits for a model server that is gone.",
    ),
    foregroundRecoveryTimeMs: variable(
      "VLLM_FOREGROUND_RECOVERY_TIME_MS",
      milliseconds(300_000, 0),
      "How long a foreground turn that has begun waits for one, while its client waits.",
    ),
  },
} satisfies Section;

export type ServerValues = ValuesOf<typeof servers>;
