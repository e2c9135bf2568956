import { html, nothing } from "lit-html";
import type { UpstreamHealth } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { count, duration, moment } from "./format.ts";
import type { Resource } from "./resource.ts";
import { sectionOf } from "./resource.ts";

/** The state of each model server: `GET /health/upstream`. Its answer is also used if its status is 503. */

/** Model names that are shown of one server. */
const MAX_MODELS = 20;

type OneOfSeveral = NonNullable<UpstreamHealth["servers"]>[number];
type Server = Omit<UpstreamHealth, "servers" | "recovery"> & Partial<Omit<OneOfSeveral, "status">> & { id: string };

let health: UpstreamHealth | undefined;

async function allServers(): Promise<Server[]> {
  const answer = await callJson("/health/upstream", { alsoGood: [503, 504] });
  // The 503 may also mean that keys cannot be looked up.
  if (answer.error?.message && !answer.status) throw new Error(answer.error.message);
  health = answer as UpstreamHealth;
  const { servers, ...alone } = health;
  return servers?.map((server) => ({ ...server, id: server.name })) ?? [{ ...alone, id: "Model server" }];
}

const isAlone = () => (health?.servers?.length ?? 1) === 1;

/** The state of all servers together, in words. */
function stateInWords(status: UpstreamHealth["status"]) {
  const [it, does] = isAlone() ? ["It", "does"] : ["They", "do"];
  switch (status) {
    case "ok":
      return isAlone() ? "It answers." : "All of them answer.";
    case "degraded":
      return "Some do not answer; the others take their requests.";
    case "failing":
      return `${it} ${isAlone() ? "answers" : "answer"}, but not with usable answers: requests fail.`;
    case "unreachable":
      return `${it} ${does} not answer: requests fail.`;
  }
}

const SERVERS: Resource<Server> = {
  title: "Model servers",
  source: allServers,
  nameOf: ({ id }) => id,
  none: "There are no model servers.",
  isLive: true,
  everyMs: 15_000,
  note: () =>
    health
      ? html`<p>
          <span class="tag ${health.status === "ok" ? "good" : "bad"}">${health.status}</span> ${stateInWords(health.status)}
          <span class="note">A turn waits up to ${duration(health.recovery.foreground_ms)} for one to come back, in the background up to ${duration(health.recovery.background_ms)}. The load is the requests that run and wait at a server, as the board sees it (where there is <code>UPSTREAM_BOARD_MS</code>).</span>
        </p>`
      : nothing,
  columns: [
    { heading: "Server", cell: ({ id }) => id },
    {
      heading: "Status",
      cell: ({ status, dialect, draining, ejected, separates_tenants: separates, error }) => html`
        <span class="tag ${status === "ok" ? "good" : "bad"}">${status}</span>
        ${dialect ? html`<span class="tag">${dialect}</span>` : nothing}
        ${draining ? html`<span class="tag">draining</span>` : nothing}
        ${ejected ? html`<span class="tag bad">ejected</span>` : nothing}
        ${separates === false ? html`<span class="tag">does not separate tenants</span>` : nothing}
        ${error ? html`<p class="note">${error.message}</p>` : nothing}`,
    },
    {
      heading: "Answers in",
      kind: "number",
      cell: ({ status, latency_ms: ms }) => (status === "ok" ? duration(ms) : "–"),
    },
    { heading: "Load", kind: "number", cell: ({ board }) => count(board?.load) },
    {
      heading: "Conversations",
      cell: ({ draining, weight }) => (draining ? "no new ones" : weight === undefined ? "all" : `weight ${weight}`),
    },
    {
      heading: "Models",
      cell: ({
        models = [],
      }) => html`${models.length === 0 ? "–" : models.slice(0, MAX_MODELS).map((model) => html`<code>${model}</code> `)}
        ${models.length > MAX_MODELS ? html`<span class="note">and ${models.length - MAX_MODELS} more</span>` : nothing}`,
    },
    {
      heading: "Down since",
      kind: "when",
      cell: ({ down_since: since }) => (since === null ? "–" : moment(Date.parse(since) / 1_000)),
    },
  ],
  actions: [
    {
      label: ({ draining }) => (draining ? "Take conversations again" : "Drain"),
      icon: "power",
      needs: "changeConfiguration",
      isFor: () => !isAlone(),
      asks: ({ id, draining }) =>
        draining
          ? undefined
          : {
              title: `Drain ${id}?`,
              text: "Its conversations move to other servers with their next turn. It ends its running answers.",
              action: "Drain",
            },
      async does({ id, draining }) {
        await callJson("/v1/admin/configuration", { body: { upstreams: { [id]: { drain: !draining } } } });
        return {};
      },
    },
  ],
};

export const serversSection = sectionOf(SERVERS);
