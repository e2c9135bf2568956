/**
 * The user of this tab. The key is kept in the tab's session storage and nowhere else: a reload goes on, another tab begins without it. A
 * user who signed in at the issuer has a cookie instead, which scripts cannot read.
 * @typedef {"unknown" | "open" | "tenant" | "admin" | "both"} Who
 * `open`: the server serves without keys. `admin`: a root key, which has no responses of its own. `both`: a user of the issuer who has a
 * tenant and a role.
 */

const KEY = "console.key";

/** The other names of this console in the session storage begin with this. */
const OWN = "console.";

export const session = {
  /** @type {string | undefined} */
  key: sessionStorage.getItem(KEY) ?? undefined,
  /** @type {Who} */
  who: "unknown",
  /** True if there is an issuer to sign in at. */
  canSignIn: false,
  /** The user who is signed in at the issuer. @type {string | undefined} */
  user: undefined,
  /**
   * The models that the server has, by their names; empty where it could not say.
   * @type {string[]}
   */
  models: [],
};

/**
 * Takes a key that the server has accepted; undefined where it needs none.
 * @param {string | undefined} key
 */
export function keepKey(key) {
  session.key = key;
  if (key === undefined) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, key);
}

/** Forgets the key, and all that this tab remembers of what was done with it. */
export function forgetEverything() {
  for (const name of Object.keys(sessionStorage)) if (name.startsWith(OWN)) sessionStorage.removeItem(name);
  session.key = undefined;
  session.user = undefined;
  session.who = "unknown";
}

/**
 * The value that this tab remembers under a name; undefined where there is nothing, or nothing that can be read.
 * @param {string} name
 * @returns {any}
 */
export function recall(name) {
  try {
    return JSON.parse(sessionStorage.getItem(OWN + name) ?? "null") ?? undefined;
  } catch {
    return undefined;
  }
}

/**
 * Remembers a value for this tab, until it is closed or signed out. False where there was no room for it.
 * @param {string} name
 * @param {unknown} value
 */
export function remember(name, value) {
  try {
    sessionStorage.setItem(OWN + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
