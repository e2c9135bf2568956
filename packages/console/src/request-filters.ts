import { html } from "lit-html";

/** The filters of lists in their addresses, such as `#/operate/requests?tenant=…&from=2026-11-30T05:30:00Z`. */

/** Shorter waits are not told in lists. Milliseconds. */
export const LONG_WAIT_MS = 100;

/** The API's parameters for times, in Unix seconds. Addresses have UTC, so that everybody sees the same. */
const TIMES: Record<string, string> = { from: "created_at[gte]", until: "created_at[lt]" };

/** The address of the requests with some filters. Numbers are times, in Unix seconds; those without a value are left out. */
export function requestsAddress(filters: Record<string, string | number | undefined>) {
  const given = Object.entries(filters).filter(([, value]) => value !== undefined && value !== "");
  const query = given.map(([name, value = ""]): [string, string] => [
    name,
    typeof value === "number" ? new Date(value * 1_000).toISOString().replace(".000Z", "Z") : value,
  ]);
  return `#/operate/requests${query.length > 0 ? `?${new URLSearchParams(query)}` : ""}`;
}

/** A value of a list as a link to those of the shown objects that have it. The address keeps its other filters. */
export function filterLink(name: string, value: string, content: unknown = value) {
  const [address, query] = location.hash.split("?");
  const filters = new URLSearchParams(query);
  filters.set(name, value);
  return html`<a href=${`${address}?${filters}`} dir="auto">${content}</a>`;
}

/** The query of the API for the query of an address of a list: its metadata is `key=value`, its durations are in seconds. */
export function apiQuery(query: Record<string, string>): Record<string, string> {
  const asked = Object.entries(query).map(([name, value]) => {
    const [key = "", ...rest] = value.split("=");
    if (name === "metadata") return [`metadata[${key.trim()}]`, rest.join("=").trim()];
    if (name === "slow") return ["min_duration_ms", String(Math.round(Number(value) * 1_000) || 0)];
    return Object.hasOwn(TIMES, name)
      ? [TIMES[name], String(Math.floor(Date.parse(value) / 1_000) || 0)]
      : [name, value];
  });
  return Object.fromEntries(asked);
}
