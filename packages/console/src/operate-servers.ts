import { html, nothing } from "lit-html";
import type { UpstreamHealth } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { count, duration, moment } from "./format.ts";
import type { Page } from "./paged-list.ts";
import { sectionOf } from "./resource.ts";

/** The state of each model server: `GET /health/upstream`. Its answer is also used if its status is 503. */

/** Model names that are shown of one server. */
const MAX_MODELS = 20;

type OneOfSeveral = NonNullable<UpstreamHealth["servers"]>[number];
type Server = Omit<UpstreamHealth, "servers" | "recovery"> &
  Partial<Omit<OneOfSeveral, "status">> & { id: string; isAlone: boolean };

interface Answer extends Page<Server> {
  health: UpstreamHealth;
}

async function allServers(): Promise<Answer> {
  const answer = await callJson("/health/upstream", { alsoGood: [503, 504] });
  // The 503 may also mean that keys cannot be looked up.
  if (answer.error?.message && !answer.status) throw new Error(answer.error.message);
  const health = answer as UpstreamHealth;
  const { servers, ...alone } = health;
  const isAlone = (servers?.length ?? 1) === 1;
  const all = servers?.map((server) => ({ ...server, id: server.name })) ?? [{ ...alone, id: "Model server" }];
  const data = all.map((server) => ({ ...server, isAlone }));
  return { data, health };
}

/** The state of all servers together, in words. */
function stateInWords({ status, servers = [] }: UpstreamHealth) {
  const isAlone = servers.length <= 1;
  switch (status) {
    case "ok":
      return isAlone ? "It answers." : "All of them answer.";
    case "degraded":
      return "Some do not answer; the others take their requests.";
    case "failing":
      return `${isAlone ? "It answers" : "They answer"}, but not with usable answers: requests fail.`;
    case "unreachable":
      return `${isAlone ? "It does" : "They do"} not answer: requests fail.`;
  }
}

function healthTemplate(health: UpstreamHealth) {
  const { foreground_ms: foreground, background_ms: background } = health.recovery;
  return html`<p>
    <span class="tag ${health.status === "ok" ? "good" : "bad"}">${health.status}</span> ${stateInWords(health)}
    <span class="note">A turn waits up to ${duration(foreground)} for one to come back, in the background up to ${duration(background)}. The load is the requests that run and wait at a server, as the board sees it (where there is <code>UPSTREAM_BOARD_MS</code>).</span>
  </p>`;
}

function statusTemplate({ status, dialect, draining, ejected, separates_tenants: separates, error }: Server) {
  const tag = (text: unknown, look = "") => (text ? html`<span class="tag ${look}">${text}</span> ` : nothing);
  return html`${tag(status, status === "ok" ? "good" : "bad")}${tag(dialect)}${tag(draining && "draining")}
    ${tag(ejected && "ejected", "bad")}${tag(separates === false && "does not separate tenants")}
    ${error ? html`<p class="note">${error.message}</p>` : nothing}`;
}

function modelsTemplate({ models = [] }: Server) {
  return html`${models.length === 0 ? "–" : models.slice(0, MAX_MODELS).map((model) => html`<code>${model}</code> `)}
    ${models.length > MAX_MODELS ? html`<span class="note">and ${models.length - MAX_MODELS} more</span>` : nothing}`;
}

export const serversSection = sectionOf<Server, Answer>({
  title: "Model servers",
  source: allServers,
  nameOf: (server) => server.id,
  none: "There are no model servers.",
  isLive: true,
  everyMs: 15_000,
  note: ({ health }) => healthTemplate(health),
  columns: [
    ["Server", (server) => server.id],
    ["Status", statusTemplate],
    ["Answers in", (server) => (server.status === "ok" ? duration(server.latency_ms) : "–"), "number"],
    ["Load", (server) => count(server.board?.load), "number"],
    [
      "Conversations",
      ({ draining, weight }) => (draining ? "no new ones" : weight === undefined ? "all" : `weight ${weight}`),
    ],
    ["Models", modelsTemplate],
    ["Down since", ({ down_since: since }) => moment(since === null ? null : Date.parse(since) / 1_000), "when"],
  ],
  actions: [
    {
      label: (server) => (server.draining ? "Take conversations again" : "Drain"),
      icon: "power",
      needs: "changeConfiguration",
      isFor: ({ isAlone }) => !isAlone,
      asks: ({ id, draining }) => {
        const text = "Its conversations move to other servers with their next turn. It ends its running answers.";
        return draining ? undefined : { title: `Drain ${id}?`, text };
      },
      does: ({ id, draining }) =>
        callJson("/v1/admin/configuration", { body: { upstreams: { [id]: { drain: !draining } } } }).then(
          () => undefined,
        ),
    },
  ],
});
