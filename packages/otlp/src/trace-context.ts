/**
 * The position of a request in its trace, by W3C's Trace Context (level 1). A caller's header is untrusted: it is
 * checked against the grammar, bounded, and ignored as a whole if it is invalid.
 */

/** `traceparent` of a future version may continue after its fourth field, for this many characters. */
const MAX_TRACEPARENT_LENGTH = 256;

const TRACEPARENT = /^(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

/** The flag of a caller that keeps the trace. */
const SAMPLED = 1;

/** The length that the recommendation requires every participant to forward. */
const MAX_TRACESTATE_LENGTH = 512;
const MAX_TRACESTATE_MEMBERS = 32;

const MEMBER =
  /^(?:[a-z0-9][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/;

/** A position in a trace, by W3C's Trace Context. Ids are lower-case hexadecimal. */
export interface Trace {
  /** 32 digits. */
  readonly traceId: string;
  /** The caller's span, 16 digits. */
  readonly parent: string | undefined;
  /** The request's own span, 16 digits. */
  readonly span: string;
  /** The flag `sampled` as it is forwarded. */
  readonly isSampled: boolean;
  /** Tells whether this request's own spans are kept. */
  readonly isKept: boolean;
  /** `tracestate` as it came. */
  readonly state: string | undefined;
  /** Tells whether called servers get the trace. */
  readonly isForwarded: boolean;
}

/** The trace in a caller's request. */
export interface RemoteTrace {
  traceId: string;
  /** The caller's span. */
  parent: string;
  isSampled: boolean;
  state: string | undefined;
}

/** The trace context of the headers `traceparent` and `tracestate`; undefined where they have none. */
export function readTraceContext(traceparent: string | null, tracestate: string | null): RemoteTrace | undefined {
  if (traceparent === null || traceparent.length > MAX_TRACEPARENT_LENGTH) return undefined;
  const [, version, traceId = "", parent = "", flags = "", rest] = TRACEPARENT.exec(traceparent.trim()) ?? [];
  if (version === undefined || (version === "00" && rest !== undefined)) return undefined;
  const isSampled = (Number.parseInt(flags, 16) & SAMPLED) === SAMPLED;
  return { traceId, parent, isSampled, state: readState(tracestate) };
}

/** `tracestate`, if it is valid; without empty members. */
function readState(text: string | null): string | undefined {
  if (text === null || text.length > MAX_TRACESTATE_LENGTH) return undefined;
  const members = text.split(",").flatMap((member) => (member.trim() === "" ? [] : [member.trim()]));
  if (members.length === 0 || members.length > MAX_TRACESTATE_MEMBERS) return undefined;
  const keys = new Set(members.map((member) => member.slice(0, member.indexOf("="))));
  return keys.size === members.length && members.every((member) => MEMBER.test(member)) ? members.join(",") : undefined;
}

/** The settings of tracing. */
export interface TraceSettings {
  /** The destination; undefined: no trace is kept. */
  traces: unknown;
  /** The share of new traces that is kept, and whether a caller's own decision has precedence. */
  sampler: { ratio: number; asksParent: boolean };
  /** True if a caller's trace is read, and forwarded. */
  forwardsTraces: boolean;
}

/**
 * The trace of a new request: the caller's, or a new one. Undefined if traces are neither kept nor forwarded. A
 * caller's decision has precedence for samplers that ask the parent; a trace that is only forwarded keeps its caller's
 * decision.
 */
export function newTrace(
  { traces, sampler, forwardsTraces }: TraceSettings,
  remote: RemoteTrace | undefined,
): Trace | undefined {
  if (!traces && (!forwardsTraces || !remote)) return undefined;
  const traceId = remote?.traceId ?? randomHex(16);
  const isSampled = traces !== undefined && isKept(traceId, remote, sampler);
  return {
    traceId,
    parent: remote?.parent,
    // A span that is not kept cannot be found: called servers then continue the caller's span.
    span: isSampled || !remote ? newSpanId() : remote.parent,
    isSampled: traces ? isSampled : remote?.isSampled === true,
    isKept: isSampled,
    state: remote?.state,
    isForwarded: forwardsTraces,
  };
}

/** A trace's id decides whether it is kept, so that all participants with the same share keep the same traces. */
function isKept(traceId: string, remote: RemoteTrace | undefined, { ratio, asksParent }: TraceSettings["sampler"]) {
  if (remote && asksParent) return remote.isSampled;
  // Its last 52 bits: the precision of a number.
  return Number.parseInt(traceId.slice(-13), 16) < ratio * 2 ** 52;
}

/** A new span's id: 16 hexadecimal digits. */
export function newSpanId(): string {
  return randomHex(8);
}

/** Random bytes, as hexadecimal digits. */
export function randomHex(bytes: number): string {
  let hex = "";
  for (const byte of crypto.getRandomValues(new Uint8Array(bytes))) hex += byte.toString(16).padStart(2, "0");
  return hex;
}

/**
 * The header `traceparent` for calls from `span`; undefined if it is not forwarded. If the request's spans are not
 * kept, the header names the request's own span.
 */
export function traceparent(trace: Trace | undefined, span?: string): string | undefined {
  if (!trace?.isForwarded) return undefined;
  return `00-${trace.traceId}-${span || trace.span}-${trace.isSampled ? "01" : "00"}`;
}
