import type { Parsed } from "./json.ts";

/**
 * The user of this tab. The key is kept only in the tab's session storage: a reload keeps it, another tab starts
 * without it. A user who signed in at the issuer has a cookie instead. Scripts cannot read that cookie.
 * `open`: the server serves without keys. `admin`: a
 * root key, which has no responses of its own. `both`: a user of the issuer who has a tenant and a role.
 */
export type Who = "unknown" | "open" | "tenant" | "admin" | "both";

const KEY = "console.key";

/** The prefix of this console's other names in the browser's storage. */
const OWN = "console.";

export interface Session {
  key?: string;
  who: Who;
  /** The user who is signed in at the issuer. */
  user?: string;
  /** The names of the server's models. Empty if the server could not list them; undefined until it has answered. */
  models?: string[];
}

export const session: Session = { key: sessionStorage.getItem(KEY) ?? undefined, who: "unknown" };

/**
 * The server's access, which the page names (`src/http/console.ts`): `open` needs no key, `sign-in` has an issuer beside keys.
 * @returns `open`, `keys`, `sign-in`, `unknown`
 */
export function access(): string | undefined {
  return document.documentElement.dataset.access;
}

/** Tells whether the deployment has a guard that moderates; the page says so, too. */
export function hasGuard() {
  return document.documentElement.dataset.guard === "yes";
}

/** The hosted tools that the deployment has, by their types. */
export function hostedTools(): readonly string[] {
  return (document.documentElement.dataset.tools ?? "").split(" ");
}

/** Tells whether the deployment lists stored responses, with their time and cost. */
export function listsResponses() {
  return document.documentElement.dataset.list === "yes";
}

/**
 * Takes this tab's user to be the one of the last load, or anybody where no key is needed, before the server has said so.
 * @returns whether there is such a user
 */
export function assumeUser(): boolean {
  const isOpen = access() === "open";
  const { who, user, models } = recall("user") ?? {};
  if (who !== undefined && (who === "open") === isOpen) Object.assign(session, { who, user, models });
  else if (isOpen) session.who = "open";
  return session.who !== "unknown";
}

/** True when the user has signed out: the page is about to be loaded again, and must save nothing more. */
let isOver = false;

/**
 * Takes the user whom the server has named, and the key that it has accepted. Undefined if the server needs none.
 */
export function keepUser(key: string | undefined, user: { who: Who; user: string | undefined; models: string[] }) {
  if (isOver) return;
  session.key = key;
  if (key === undefined) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, key);
  Object.assign(session, user);
  remember("user", user);
}

/** Deletes the key, and everything that this tab saved. */
export function forgetEverything() {
  isOver = true;
  for (const name of Object.keys(sessionStorage)) if (name.startsWith(OWN)) sessionStorage.removeItem(name);
  session.key = undefined;
  session.user = undefined;
  session.who = "unknown";
}

/** The value that this tab saved under a name. Undefined if there is none, or it cannot be parsed. */
export function recall(name: string): Parsed {
  return read(() => sessionStorage, name);
}

/** Saves a value until the tab is closed or the user signs out. False if there was no room. */
export function remember(name: string, value: unknown) {
  return !isOver && write(() => sessionStorage, name, value);
}

/** The value that this browser keeps under a name, for all tabs and users. Undefined if there is none, or it cannot be parsed. */
export function kept(name: string): Parsed {
  return read(() => localStorage, name);
}

/** Keeps a value until the user deletes it. False if the browser does not. */
export function keep(name: string, value: unknown) {
  return write(() => localStorage, name, value);
}

/** @param storage Throws where the browser has none. */
function read(storage: () => Storage, name: string): Parsed {
  try {
    return JSON.parse(storage().getItem(OWN + name) ?? "null") ?? undefined;
  } catch {
    return undefined;
  }
}

function write(storage: () => Storage, name: string, value: unknown) {
  try {
    storage().setItem(OWN + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
