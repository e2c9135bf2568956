import { html, render } from "lit-html";
import { type Part, partElement, partsOf, sectionLinks } from "./list-and-one.ts";
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
import type { View } from "./view.ts";

/**
 * The operator's views. Each is a section: `#/operate/{section}`. A section is made when it is first shown.
 * `isOpen` is true for sections that are also shown if the server needs no keys. `reads`: the operation without which a role has no such section.
 */
const SECTIONS: Record<string, { label: string; isOpen?: true; reads?: string; make: () => Part }> = {
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
  /** The section of the address, while the view is shown. */
  let wanted: string | undefined;
  let rights: Promise<void> | undefined;
  const links = ([shown = ""]: string[]) =>
    sectionLinks(
      "operate",
      allowedSections().map(([name, { label }]) => [name, label] as const),
      shown,
    );
  const parts = partsOf(view, "Operate", ([name = ""]) => sectionOf(name), links, true);
  return {
    ...parts,
    async show(route) {
      const [name = ""] = route.path;
      wanted = name;
      // Before the rights are known, links would appear that the user does not have, and others would move under the pointer.
      rights ??= isAdministrator() ? loadRights() : Promise.resolve();
      await rights;
      if (wanted !== name) return;
      const isAllowed = allowedSections().some(([each]) => each === name);
      parts.show({ ...route, path: [isAllowed ? name : firstSection()] });
    },
    hide() {
      wanted = undefined;
      parts.hide?.();
    },
    signedIn() {
      rights = undefined;
      parts.signedIn?.();
    },
  };
}

function sectionOf(name: string): Part {
  const kind = SECTIONS[name];
  return kind && (isAdministrator() || kind.isOpen) ? kind.make() : needsRootKey();
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

function needsRootKey(): Part {
  const element = partElement();
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
  return { element, show() {} };
}
