/** The filters of *Requests*, and the address that has them: `#/operate/requests?tenant=…&status=…`. */

/** Shorter waits are not told in lists. Milliseconds. */
export const LONG_WAIT_MS = 100;

export interface RequestFilters {
  tenant?: string;
  api_key_id?: string;
  model?: string;
  server?: string;
  status?: string;
  /** Only requests that took at least this long, in seconds. */
  slow?: string;
  /** Unix seconds; the request began then or later. */
  from?: number;
  /** Unix seconds; the request began before. */
  until?: number;
}

/** The address of the requests with some filters. Times in it are those of UTC, so that everybody sees the same. */
export function requestsAddress(filters: RequestFilters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(filters)) {
    if (value === undefined || value === "") continue;
    query.set(name, typeof value === "number" ? new Date(value * 1_000).toISOString().replace(".000Z", "Z") : value);
  }
  return query.size > 0 ? `#/operate/requests?${query}` : "#/operate/requests";
}

/** The query of the API for the query of an address of a list: its times are in UTC, its metadata is `key=value`. */
export function apiQuery(query: Record<string, string>): Record<string, string> {
  const asked: Record<string, string> = {};
  for (const [name, value] of Object.entries(query)) {
    if (name === "slow") asked.min_duration_ms = String(Math.round(Number(value) * 1_000) || 0);
    else if (name === "from") asked["created_at[gte]"] = String(secondsOf(value));
    else if (name === "until") asked["created_at[lt]"] = String(secondsOf(value));
    else if (name === "metadata") {
      const [key = "", ...rest] = value.split("=");
      asked[`metadata[${key.trim()}]`] = rest.join("=").trim();
    } else asked[name] = value;
  }
  return asked;
}

/**
 * Unix seconds.
 * @param time as `2026-11-30T05:30:00Z`
 */
function secondsOf(time: string) {
  return Math.floor(new Date(time).getTime() / 1_000) || 0;
}
