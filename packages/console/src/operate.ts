import { html, nothing, render } from "lit-html";
import { auditSection } from "./operate-audit.ts";
import { configurationSection } from "./operate-configuration.ts";
import { keysSection } from "./operate-keys.ts";
import { overviewSection } from "./operate-overview.ts";
import { requestsSection } from "./operate-requests.ts";
import { runsSection } from "./operate-runs.ts";
import { serversSection } from "./operate-servers.ts";
import { usageSection } from "./operate-usage.ts";
import { loadRights, may } from "./rights.ts";
import { listsResponses, session } from "./session.ts";
import type { Section, View } from "./view.ts";

/** The operator's views. Each is a section: `#/operate/{section}`. A section is made when it is first shown. */
/**
 * `isOpen` is true for sections that are also shown if the server needs no keys. `reads`: the operation without which a role has no such section.
 */
const SECTIONS: Record<
  string,
  { label: string; isOpen?: true; reads?: string; make: (element: HTMLElement) => Section }
> = {
  overview: { label: "Overview", reads: "retrieveOverview", make: overviewSection },
  requests: { label: "Requests", reads: "listRequests", make: requestsSection },
  servers: { label: "Model servers", isOpen: true, make: serversSection },
  configuration: { label: "Configuration", reads: "retrieveConfiguration", make: configurationSection },
  runs: { label: "Live runs", make: runsSection },
  keys: { label: "Keys and limits", make: keysSection },
  usage: { label: "Usage", make: usageSection },
  audit: { label: "Audit log", make: auditSection },
};

export function operateView(view: HTMLElement): View {
  const made: Map<string, { element: HTMLElement; section: Section }> = new Map();
  let shown = "";
  /** The section of the address, while the view is shown. */
  let wanted: string | undefined;
  let rights: Promise<void> | undefined;
  const body = document.createElement("div");

  function draw() {
    render(
      html`<div class="stack">
        <h1 class="unseen">Operate</h1>
        <nav class="sections" aria-label="Sections">
          ${allowedSections().map(
            ([name, { label }]) =>
              html`<a href=${`#/operate/${name}`} aria-current=${name === (wanted ?? shown) ? "page" : nothing}>${label}</a>`,
          )}
        </nav>
        ${body}
      </div>`,
      view,
    );
  }

  function open(name: string, query: URLSearchParams) {
    if (name !== shown) made.get(shown)?.section.hide?.();
    shown = name;
    draw();
    const kind = SECTIONS[name];
    if (!kind) return;
    let next = made.get(name);
    if (!next) {
      const element = document.createElement("div");
      element.className = "stack";
      next = { element, section: mayUse(kind) ? kind.make(element) : needsRootKey(element) };
      made.set(name, next);
    }
    body.replaceChildren(next.element);
    next.section.show(query);
  }

  return {
    async show({ path: [name = ""], query }) {
      wanted = name;
      // Before the rights are known, links would appear that the user does not have, and others would move under the pointer.
      if (made.size > 0) draw();
      rights ??= isAdministrator() ? loadRights() : Promise.resolve();
      await rights;
      if (wanted !== name) return;
      wanted = allowedSections().some(([each]) => each === name) ? name : firstSection();
      open(wanted, query);
    },
    hide() {
      wanted = undefined;
      made.get(shown)?.section.hide?.();
    },
    signedIn() {
      rights = undefined;
      made.get(shown)?.section.hide?.();
      made.clear();
    },
  };
}

function isAdministrator() {
  return session.who === "admin" || session.who === "both";
}

/** The section that is shown where the address has none, or one that the user may not read. */
function firstSection() {
  return isAdministrator() && listsResponses() && may("retrieveOverview") ? "overview" : "servers";
}

/** The sections that the user's role may read. */
function allowedSections() {
  return Object.entries(SECTIONS).filter(([, { reads }]) => reads === undefined || may(reads));
}

function mayUse(kind: { isOpen?: true }) {
  return isAdministrator() || kind.isOpen === true;
}

function needsRootKey(element: HTMLElement): Section {
  render(
    html`<div class="card stack">
      <h2>This needs a root key</h2>
      <p>
        This server takes no keys, so that it has none to look after, and nobody is its administrator. Set <code>ADMIN_KEY</code>, and sign in here with
        that key. <code>npm run create-key -- --admin ops</code> makes one.
      </p>
    </div>`,
    element,
  );
  return { show() {} };
}
