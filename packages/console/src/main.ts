import { html, nothing, render } from "lit-html";
import { ApiFault, call, whenKeyIsRefused } from "./api.ts";
import { beside, loadLater, whenIdle } from "./beside.ts";
import { chatView } from "./chat-view.ts";
import { faultNotice } from "./dialogs.ts";
import { icon } from "./icons.ts";
import { closeOutside } from "./menu.ts";
import { access, assumeUser, forgetEverything, session, type Who } from "./session.ts";
import { askForKey, identify, returnFromIssuer } from "./sign-in.ts";
import { applyTheme, chooseTheme, theme } from "./theme.ts";
import type { Route, View } from "./view.ts";

/**
 * The shell: it knows who is signed in and shows the views. A view is made when it is first shown. It stays hidden
 * while another view is shown, so that typed text is not lost.
 */

interface Kind {
  label: string;
  /** True if it stands in the menu also where the window is wide. */
  isRare?: true;
  for: Who[];
  make: (section: HTMLElement) => View;
}

const VIEWS: Record<string, Kind> = {
  chat: { label: "Chat", for: ["open", "tenant", "both"], make: chatView },
  responses: { label: "Responses", for: ["open", "tenant", "both"], make: later("lookView") },
  files: { label: "Files", for: ["open", "tenant", "both"], make: later("filesView") },
  batches: { label: "Batches", for: ["open", "tenant", "both"], make: later("batchesView") },
  decisions: { isRare: true, label: "Decisions", for: ["open", "tenant", "both"], make: later("decisionsView") },
  moderation: { isRare: true, label: "Moderation", for: ["open", "tenant", "both"], make: later("moderationView") },
  webhooks: { isRare: true, label: "Webhooks", for: ["open", "tenant", "both"], make: later("webhooksView") },
  connect: { label: "Connect", for: ["open", "tenant", "both"], make: later("connectView") },
  operate: { label: "Operate", for: ["open", "admin", "both"], make: later("operateView") },
};

/** A view whose code is loaded when it is first made. */
function later(name: `${string}View` & keyof typeof import("./later.ts")): (section: HTMLElement) => View {
  return (section) => {
    let view: View | undefined;
    let route: Route | undefined;
    const load = async () => {
      try {
        const made = await loadLater();
        if (!view) {
          section.replaceChildren();
          view = made[name](section);
        }
        if (route) view.show(route);
      } catch {
        render(faultNotice("This part of the page could not be loaded. Reload the page."), section);
      }
    };
    return {
      show(shown) {
        route = shown;
        if (view) view.show(shown);
        else void load();
      },
      hide() {
        route = undefined;
        view?.hide?.();
      },
      signedIn: () => view?.signedIn?.(),
    };
  };
}

const bar = element("bar");
const main = element("main");

/** `top`: the scroll position at the time another view was shown. */
const made: Map<string, { view: View; section: HTMLElement; top: number }> = new Map();
let shown: string | undefined;
/** The path of the last shown address. */
let address = "";

function element(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`The page has no #${id}.`);
  return found;
}

function currentRoute(): Route {
  const [address = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view = "", ...path] = address.split("/").map(decoded);
  return { view, path, query: new URLSearchParams(query) };
}

function decoded(part: string) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function allowedViews(): [name: string, kind: Kind][] {
  return Object.entries(VIEWS).filter(([, kind]) => kind.for.includes(session.who));
}

/** A narrow window has the views in a menu. */
const narrow = matchMedia("(max-width: 900px)");
narrow.addEventListener("change", drawBar);

function drawBar() {
  const chosen = theme();
  const views = allowedViews();
  const isInMenu = ({ isRare }: Kind) => narrow.matches || isRare === true;
  const seen = views.filter(([, kind]) => !isInMenu(kind));
  const inMenu = views.filter(([, kind]) => isInMenu(kind));
  const link = ([name, { label }]: [string, Kind]) =>
    html`<a href="#/${name}" aria-current=${name === shown ? "page" : nothing}>${label}</a>`;
  const current = inMenu.find(([name]) => name === shown)?.[1].label;
  render(
    html`
      <p class="font-semibold max-sm:hidden">responses-edge</p>
      <nav class="flex min-w-0 items-center gap-1.5" aria-label="Views">
        ${seen.map(link)}
        <details class="menu" @toggle=${closeOutside} ?hidden=${inMenu.length === 0}>
          <summary class=${current === undefined ? "" : "current"}>${icon("menu")} ${current ?? "More"}</summary>
          <div class="card start-0 min-w-44 p-2">${inMenu.map(link)}</div>
        </details>
      </nav>
      <div class="ms-auto flex min-w-0 items-center gap-1.5">
        <label class="unseen" for="theme">Theme</label>
        <select class="min-h-[34px] w-auto" id="theme" @change=${(event: Event) => chooseTheme((event.target as HTMLSelectElement).value as never)}>
          ${[
            ["auto", "Auto"],
            ["light", "Light"],
            ["dark", "Dark"],
          ].map(([value, label]) => html`<option value=${value} ?selected=${value === chosen}>${label}</option>`)}
        </select>
        ${
          session.who === "open"
            ? html`<span class="note max-sm:hidden" title="This server needs no key.">No keys</span>`
            : html`${session.user === undefined ? nothing : html`<span class="note" dir="auto">${session.user}</span>`}
                <button type="button" @click=${() => void signOut()}>Sign out</button>`
        }
      </div>
    `,
    bar,
  );
}

async function signOut() {
  if (session.user !== undefined) await call("/console/logout", { method: "POST" }).catch(() => {});
  forgetEverything();
  location.hash = "";
  location.reload();
}

function showRoute() {
  const allowed = allowedViews();
  let route = currentRoute();
  if (!allowed.some(([name]) => name === route.view)) {
    const [first] = allowed;
    if (!first) return drawBar();
    route = { view: first[0], path: [], query: new URLSearchParams() };
  }
  const isOther = shown !== route.view;
  const isElsewhere = isOther || address !== route.path.join("/");
  address = route.path.join("/");
  if (isOther) {
    const before = shown === undefined ? undefined : made.get(shown);
    before?.view.hide?.();
    if (before) {
      before.top = scrollY;
      before.section.hidden = true;
    }
    shown = route.view;
  }
  let next = made.get(route.view);
  if (!next) {
    const section = document.createElement("section");
    section.className = `view view-${route.view}`;
    main.append(section);
    const kind = VIEWS[route.view];
    if (!kind) return;
    next = { section, view: kind.make(section), top: 0 };
    made.set(route.view, next);
  }
  next.section.hidden = false;
  for (const menu of bar.querySelectorAll("details")) menu.open = false;
  document.title = `${VIEWS[route.view]?.label} · responses-edge`;
  drawBar();
  next.view.show(route);
  if (isElsewhere) scrollTo({ top: isOther ? next.top : 0, behavior: "instant" });
}

/** True if the form for a key is up because the one before was refused. */
let isAsking = false;

/** @param message the server's words */
async function keyRefused(message: string) {
  if (isAsking) return;
  isAsking = true;
  const why =
    session.user === undefined ? `The server does not accept this key any more: ${message}` : "Your sign-in has ended.";
  const reason = `${why} Your input is still here.`;
  const isSignedIn = await askForKey({ reason, isRequired: false });
  isAsking = false;
  if (!isSignedIn) return;
  for (const { view } of made.values()) view.signedIn?.();
  showRoute();
}

async function begin() {
  applyTheme();
  // Views share the page's place: each has its own.
  history.scrollRestoration = "manual";
  element("skip").addEventListener("click", () => main.focus());
  const refusal = returnFromIssuer();
  const isAssumed = refusal === undefined && assumeUser();
  if (isAssumed) {
    start();
    await painted();
  }
  const { who } = session;
  try {
    if (access() === "keys" && session.key === undefined) await askForKey({ reason: refusal, isRequired: true });
    else await identify(session.key);
  } catch (error) {
    if (!(error instanceof ApiFault)) throw error;
    // If another key is needed, the form for it is up.
    if (isAssumed && error.status === 401) return;
    main.replaceChildren();
    if (error.status !== 401) return showUnusable(error);
    const reason =
      refusal ?? (session.key !== undefined || error.code === "no_api_keys_configured" ? error.message : undefined);
    await askForKey({ reason, isRequired: true });
  }
  if (!isAssumed) return start();
  for (const { view } of made.values()) view.identified?.();
  if (session.who === who) drawBar();
  else showRoute();
}

/** Resolves after the next picture of the page. A page that is not shown has none. */
function painted(): Promise<void> {
  return new Promise((resolve) => {
    if (document.hidden) resolve();
    else requestAnimationFrame(() => setTimeout(resolve));
  });
}

/** Shows the views. */
function start() {
  main.replaceChildren();
  bar.hidden = false;
  whenKeyIsRefused((message) => void keyRefused(message));
  addEventListener("hashchange", showRoute);
  showRoute();
  // Another version of the server has other files: what may be needed is loaded while these are there.
  whenIdle(() => {
    loadLater().catch(() => {});
    beside("markdown-reader.js").catch(() => {});
  });
}

function showUnusable(error: ApiFault) {
  render(
    html`<div class="stack mx-auto mt-[15vh] max-w-160 justify-items-start p-5">
      <h1>This server cannot be used</h1>
      <p role="alert">${error.message}</p>
      <button class="primary" type="button" @click=${() => location.reload()}>Try again</button>
    </div>`,
    main,
  );
}

void begin();
