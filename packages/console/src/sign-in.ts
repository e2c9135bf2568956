import { html, nothing } from "lit-html";
import { ApiFault, call, callJson } from "./api.ts";
import { askFor } from "./question.ts";
import { access, keepUser, recall, remember, type Who } from "./session.ts";

/** Finds out who uses this tab, and asks for a key if one is needed. */

/**
 * Asks the server for the key's owner and for the list of models. Sets `session`. Throws an ApiFault if the server
 * refuses the key (401) or cannot check it.
 * @param key undefined: tries without a key
 */
export async function identify(key: string | undefined) {
  const [user, { models, isRoot }] = await Promise.all([key === undefined ? signedIn() : undefined, modelsFor(key)]);
  let who: Who = key === undefined && !user ? "open" : "tenant";
  if (isRoot) who = "admin";
  else if (user?.role) who = "both";
  keepUser(key, { who, user: user?.name, models });
}

/** The user who is signed in at the issuer, if any. */
async function signedIn(): Promise<{ name: string; role: string | null } | undefined> {
  if (access() !== "sign-in") return undefined;
  return (await callJson("/console/session")).session ?? undefined;
}

/**
 * The names of the models that a key may use; none where the server cannot list them. `isRoot`: the key may only administer.
 */
async function modelsFor(key: string | undefined): Promise<{ models: string[]; isRoot: boolean }> {
  try {
    const { data } = await callJson("/v1/models", { key });
    return { models: data.map(({ id }: { id: string }) => id), isRoot: false };
  } catch (error) {
    if (!(error instanceof ApiFault)) throw error;
    const isRoot = error.status === 403 && error.code === "insufficient_permissions";
    if (isRoot) await call("/v1/admin/keys?limit=1", { key });
    // A server that reports a model server as down has accepted the key.
    else if (![429, 502, 503, 504].includes(error.status)) throw error;
    return { models: [], isRoot };
  }
}

/** Messages for the server's codes in the address after a failed sign-in (`src/http/sign-in.ts`). */
const REFUSALS: Record<string, string> = {
  refused: "You were not signed in: the sign-in was refused or cancelled.",
  expired: "You were not signed in: the sign-in took too long, or began in another browser. Try again.",
  no_access: "Your account has no access here. Ask the operator of this server for a tenant or a role.",
  unavailable: "You were not signed in: the identity provider did not answer. Try again later.",
};

/**
 * Returns from the issuer to the previous view, and removes the issuer's parameters from the address.
 * @returns the reason if the sign-in failed
 */
export function returnFromIssuer(): string | undefined {
  const why = new URLSearchParams(location.search).get("sign-in");
  const at = recall("sign-in-at");
  if (why !== null || typeof at === "string") {
    history.replaceState(null, "", `/${location.hash || (typeof at === "string" ? at : "")}`);
  }
  sessionStorage.removeItem("console.sign-in-at");
  return why === null ? undefined : (REFUSALS[why] ?? REFUSALS.refused);
}

/**
 * Shows the form for a key, until the server has accepted one.
 * @param options `reason`: why it is asked for, in the server's words; `isRequired`: there is nothing behind the form, so that it cannot be put away
 * @returns whether somebody is signed in
 */
export function askForKey({ reason, isRequired }: { reason?: string; isRequired: boolean }): Promise<boolean> {
  const note = "It stays in this tab, and is forgotten when you sign out or close it.";
  const link = html`<a class="button" href="/console/login" @click=${() => remember("sign-in-at", location.hash)}>Sign in with your account</a>`;
  return askFor(
    {
      title: "responses-edge",
      text: reason
        ? html`<p class="notice" dir="auto" role="alert">${reason}</p>`
        : html`<p>This server needs an API key.</p>`,
      form: [{ name: "key", label: "API key", kind: "secret", isRequired: true, note }],
      below: access() === "sign-in" ? link : nothing,
      action: "Sign in",
      back: isRequired ? "" : "Later",
    },
    ({ key }) => identify(key),
  );
}
