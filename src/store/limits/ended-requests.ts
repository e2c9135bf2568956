import type { UsageKind } from "@responses-edge/usage-limits";
import type { Config, PassthroughEndpoint } from "../../config/index.ts";
import type { EndedRequest } from "../../telemetry/telemetry.ts";
import { noteRequest, type ReportTarget, reportRequests } from "../deployment/request-reports.ts";
import { countOutcome, reportUsage, type UseOwner } from "./allowances.ts";

/**
 * Requests that have ended: their caller's usage counts errors and durations, beside what they have used, and the operator's log has
 * each of them, where there is one.
 */

/** The kinds of usage of vLLM's own endpoints. The others ask no model. */
export const PASSED_KINDS: Partial<Record<PassthroughEndpoint, UsageKind>> = {
  "chat/completions": "completions",
  completions: "completions",
  messages: "completions",
  rerank: "completions",
  "v2/rerank": "completions",
  score: "completions",
  classify: "completions",
  pooling: "completions",
  embeddings: "embeddings",
  "audio/transcriptions": "audio_transcriptions",
  "audio/translations": "audio_transcriptions",
  "images/generations": "images",
  "images/edits": "images",
};

/** The kind of usage of a request, by its endpoint in the wide event. */
const KINDS: ReadonlyMap<string, UsageKind> = new Map([
  ["response.create", "completions"],
  ["run", "completions"],
  ["POST /v1/responses", "completions"],
  ["POST /v1/responses/compact", "completions"],
  ["POST /v1/decisions", "decisions"],
  ["POST /v1/moderations", "moderations"],
  ...Object.entries(PASSED_KINDS).flatMap(([name, kind]) => [
    [`POST /v1/${name}`, kind] as const,
    [`POST /${name}`, kind] as const,
  ]),
]);

/** The model of a request that was refused before it was known which one it asks. */
const UNKNOWN_MODEL = "unknown";

/** The caller of a request, and the receivers of its reports. */
export interface EndedOwner extends UseOwner, ReportTarget {
  config: Config;
}

/** Reports a request that has ended. `isBrief`: the report comes at once, because waiting costs. */
export function reportEnded(owner: EndedOwner, ended: EndedRequest, isBrief = false): void {
  const { endpoint, level, model = UNKNOWN_MODEL, total_ms: ms, first_token_ms: firstTokenMs } = ended.event;
  const outcome = { isError: level === "error", ms, firstTokenMs };
  const kind = KINDS.get(endpoint);
  if (kind) countOutcome(owner, kind, model, outcome, isBrief);
  if (owner.config.listsResponses) noteRequest(ended, outcome, owner, isBrief);
}

/** The longest time for which a process that ends waits for its reports. Milliseconds. */
const REPORTING_MS = 4_000;

/** Reports at once what is not reported of ended requests. Resolves when that was tried, or takes too long; never rejects. */
export async function reportAllEnded(): Promise<void> {
  const late = Promise.withResolvers<void>();
  const timer = setTimeout(late.resolve, REPORTING_MS);
  await Promise.race([Promise.all([reportUsage(), reportRequests()]), late.promise]);
  clearTimeout(timer);
}
