import { costOf, type Prices } from "@responses-edge/usage-limits";
import type { RequestSummary } from "../../contract/admin-objects.ts";
import type { EndedRequest } from "../../telemetry/telemetry.ts";
import type { WideEvent } from "../../telemetry/wide-event.ts";

/** A request that has ended as the operator's log has it: its wide event, without content. */

/** The status of a request whose client left before an answer (`wide-event.ts`). */
const CLIENT_CLOSED_REQUEST = 499;

/** The longest message of an error. UTF-16 units. */
const MAX_MESSAGE_LENGTH = 1_024;

/** The settings of which a summary is made. */
export interface SummaryConfig {
  keys: { prices: Prices };
}

/** False for a request that the log leaves out: a read that succeeded, and one without a tenant. */
export function isSummarised({ tenant, endpoint, status }: WideEvent): boolean {
  return tenant !== undefined && (status >= 400 || !/^(?:GET|HEAD|DELETE|OPTIONS) /.test(endpoint));
}

export function summaryOf({ event, begunAt, message }: EndedRequest, { keys }: SummaryConfig): RequestSummary {
  const { tenant = "", endpoint, model, input_tokens: input, output_tokens: output } = event;
  const cached = event.cached_tokens ?? 0;
  const tokens = input === undefined || output === undefined ? undefined : { input, cached, output };
  const usage = tokens && {
    input_tokens: tokens.input,
    cached_tokens: cached,
    output_tokens: tokens.output,
    reasoning_tokens: event.reasoning_tokens ?? 0,
  };
  const { error: code, upstream_error: upstream = null } = event;
  return {
    object: "request.summary",
    id: event.request_id,
    created_at: Math.floor(begunAt / 1000),
    tenant,
    api_key_id: event.key_id ?? null,
    endpoint: endpoint === "run" ? "POST /v1/responses" : endpoint,
    transport: event.transport,
    http_status: event.status,
    status: statusOf(event),
    response_id: event.response_id ?? null,
    model: model ?? null,
    server: event.replica ?? null,
    duration_ms: Math.max(0, event.total_ms),
    first_token_ms: event.first_token_ms ?? null,
    waited_ms: event.conversation_wait_ms ?? 0,
    queued_ms: event.queued_ms ?? 0,
    attempts: event.attempts ?? 0,
    usage: usage ?? null,
    cost_usd: tokens ? costOf(model ?? "", tokens, keys.prices) / 1e6 : null,
    error: code === undefined ? null : { code, message: (message ?? code).slice(0, MAX_MESSAGE_LENGTH), upstream },
  };
}

export function statusOf({ outcome, status }: WideEvent): RequestSummary["status"] {
  if (outcome !== undefined) return outcome as RequestSummary["status"];
  if (status === CLIENT_CLOSED_REQUEST) return "cancelled";
  return status >= 400 ? "refused" : "completed";
}
