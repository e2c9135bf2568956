import { html, nothing, render } from "lit-html";
import { ApiFault, call, callJson } from "./api.ts";
import { showModal } from "./dialogs.ts";
import { showButton } from "./form-events.ts";
import type { Who } from "./session.ts";
import { access, keepUser, recall, remember } from "./session.ts";

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
  const dialog = document.createElement("dialog");
  dialog.className = "sign-in";
  dialog.setAttribute("aria-labelledby", "sign-in-title");
  let fault = "";
  let isBusy = false;

  async function submit(event: SubmitEvent) {
    event.preventDefault();
    const field = dialog.querySelector("input");
    const key = field?.value.trim() ?? "";
    if (isBusy || key === "") return;
    isBusy = true;
    fault = "";
    draw();
    try {
      await identify(key);
      modal.close("signed in");
    } catch (error) {
      isBusy = false;
      fault = error instanceof Error ? error.message : String(error);
      draw();
      field?.select();
    }
  }

  function draw() {
    render(
      html`<form @submit=${submit}>
        <h1 id="sign-in-title">responses-edge</h1>
        ${reason === undefined ? html`<p>This server needs an API key.</p>` : html`<p class="notice" dir="auto" role="alert">${reason}</p>`}
        <label for="key">API key</label>
        <span class="secret"><input dir="auto" id="key" name="key" type="password" autocomplete="off" spellcheck="false" autofocus aria-describedby="key-note key-fault" />${showButton()}</span>
        <p class="note" id="key-note">It stays in this tab, and is forgotten when you sign out or close it.</p>
        <p class="fault" dir="auto" id="key-fault" role="alert">${fault || nothing}</p>
        <div class="buttons">
          <button class="primary" type="submit" aria-disabled=${isBusy}>${isBusy ? "Signing in…" : "Sign in"}</button>
          ${
            access() === "sign-in"
              ? html`<a class="button" href="/console/login" @click=${() => remember("sign-in-at", location.hash)}>Sign in with your account</a>`
              : nothing
          }
          ${isRequired ? nothing : html`<button type="button" @click=${() => modal.close("")}>Later</button>`}
        </div>
      </form>`,
      dialog,
    );
  }

  draw();
  dialog.addEventListener("cancel", (event) => isRequired && event.preventDefault());
  const modal = showModal(dialog);
  return modal.closed.then((result) => result === "signed in");
}
