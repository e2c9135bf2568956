import { html, nothing, render } from "lit-html";
import type { UpstreamHealth as Health } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { cardsTable, number } from "./cards-table.ts";
import { confirmed, faultNotice, messageOf } from "./dialogs.ts";
import { count, duration } from "./format.ts";
import { Refresher } from "./refresher.ts";
import { ifMay } from "./rights.ts";
import type { Section } from "./view.ts";

/** The state of each model server: `GET /health/upstream`. Its answer is also used if its status is 503. */

const EVERY_MS = 15_000;

/** Model names that are shown of one server. */
const MAX_MODELS = 20;

type OneOfSeveral = NonNullable<Health["servers"]>[number];
type Server = Pick<OneOfSeveral, "status" | "latency_ms" | "down_since" | "separates_tenants"> & Partial<OneOfSeveral>;

export function serversSection(element: HTMLElement): Section {
  let health: Health | undefined;
  let fault = "";
  const refresher = new Refresher(ask, EVERY_MS);

  async function ask() {
    try {
      const answer = await callJson("/health/upstream", { alsoGood: [503, 504] });
      // The 503 may also mean that keys cannot be looked up.
      fault = answer.error?.message && !answer.status ? answer.error.message : "";
      if (!fault) health = answer;
    } catch (error) {
      fault = messageOf(error);
    }
    draw();
  }

  /** Drains a server, or ends its draining. */
  async function setDrain(name: string, drain: boolean) {
    const text = `Its conversations move to other servers with their next turn. It ends its running answers.`;
    if (drain && !(await confirmed({ title: `Drain ${name}?`, text, action: "Drain" }))) return;
    try {
      await callJson("/v1/admin/configuration", { method: "POST", body: { upstreams: { [name]: { drain } } } });
      await refresher.now();
    } catch (error) {
      fault = messageOf(error);
      draw();
    }
  }

  function draw() {
    render(
      html`
        <div class="section-heading">
          <h2>Model servers</h2>
          <button type="button" @click=${() => void refresher.now()}>Refresh</button>
        </div>
        ${faultNotice(fault)}
        ${health ? healthTemplate(health, setDrain) : fault ? nothing : html`<p class="note">Asking them…</p>`}
      `,
      element,
    );
  }

  return { show: () => refresher.start(), hide: () => refresher.stop() };
}

function healthTemplate(health: Health, setDrain: (name: string, drain: boolean) => void) {
  const servers = health.servers ?? [health as Server];
  return html`
    <p>
      ${
        health.status === "ok"
          ? html`<span class="tag good">ok</span> ${servers.length === 1 ? "It answers." : "All of them answer."}`
          : health.status === "degraded"
            ? html`<span class="tag bad">degraded</span> Some do not answer; the others take their requests.`
            : health.status === "failing"
              ? html`<span class="tag bad">failing</span> ${servers.length === 1 ? "It answers" : "They answer"}, but not with usable answers: requests fail.`
              : html`<span class="tag bad">unreachable</span> ${servers.length === 1 ? "It does" : "They do"} not answer: requests fail.`
      }
      <span class="note">A turn waits up to ${duration(health.recovery.foreground_ms)} for one to come back, in the background up to ${duration(health.recovery.background_ms)}.</span>
    </p>
    ${cardsTable(
      "Model servers",
      [
        "Server",
        "Status",
        number("Answers in"),
        number("Load"),
        "Models",
        "Down since",
        ...(servers.length > 1 ? ["Conversations"] : []),
      ],
      servers.map((server) => rowTemplate(server, servers.length > 1 ? setDrain : undefined)),
    )}
    <p class="note">The load is the requests that run and wait at a server, as the board sees it (where there is <code>UPSTREAM_BOARD_MS</code>).</p>
  `;
}

/** @param setDrain undefined of a server that is alone */
function rowTemplate(
  {
    name = "Model server",
    status,
    latency_ms: latency,
    models = [],
    error,
    down_since: since,
    separates_tenants: separates,
    dialect,
    draining,
    ejected,
    board,
    weight,
  }: Server,
  setDrain: ((name: string, drain: boolean) => void) | undefined,
) {
  return html`<tr>
    <th scope="row">${name}</th>
    <td>
      <span class="tag ${status === "ok" ? "good" : "bad"}">${status}</span>
      ${dialect ? html`<span class="tag">${dialect}</span>` : nothing}
      ${draining ? html`<span class="tag">draining</span>` : nothing}
      ${ejected ? html`<span class="tag bad">ejected</span>` : nothing}
      ${separates === false ? html`<span class="tag">does not separate tenants</span>` : nothing}
      ${error ? html`<p class="note">${error.message}</p>` : nothing}
    </td>
    <td class="number" data-label="Answers in">${status === "ok" ? duration(latency) : "–"}</td>
    <td class="number" data-label="Load">${count(board?.load)}</td>
    <td data-label="Models">
      ${models.slice(0, MAX_MODELS).map((model) => html`<code>${model}</code> `)}
      ${models.length > MAX_MODELS ? html`<span class="note">and ${models.length - MAX_MODELS} more</span>` : nothing}
      ${models.length === 0 ? "–" : nothing}
    </td>
    <td data-label="Down since">${since === null ? "–" : new Date(since).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" })}</td>
    ${
      setDrain
        ? html`<td data-label="Conversations">
            ${draining ? "no new ones" : `weight ${weight}`}
            ${ifMay("changeConfiguration", html`<button type="button" @click=${() => setDrain(name, !draining)}>${draining ? "Take them again" : "Drain"}</button>`)}
          </td>`
        : nothing
    }
  </tr>`;
}
