import { html, nothing } from "lit-html";
import { announce } from "./announce.ts";
import { callJson } from "./api.ts";
import { messageWithField } from "./dialogs.ts";
import { type IconName, icon } from "./icons.ts";
import type { ApiObject } from "./json.ts";
import { askFor, type Question } from "./question.ts";
import { may } from "./rights.ts";

/**
 * Something that can be done with an object: how it is offered, asked about, and done. An action of a list has the subject
 * `undefined`.
 */
export interface Action<Subject, Item = Subject> {
  label: string | ((subject: Subject) => string);
  icon: IconName;
  isDangerous?: boolean;
  /** True of the one that most users want. */
  isMain?: boolean;
  /** The operation of the admin API without which a role does not have the action. */
  needs?: string;
  /** False of an object that does not have it. */
  isFor?: (subject: Subject) => boolean;
  /** An action with an address only leads there. */
  href?: (subject: Subject) => string;
  /** Undefined where nothing has to be asked. The title and the word of the button are the action's, by default. */
  asks?: (subject: Subject) => Partial<Question> | undefined | Promise<Partial<Question>>;
  /** The path that gets the values of the question's form, or the `body`, and answers with the object as it is then. */
  posts?: (subject: Subject) => string;
  body?: (given: ApiObject, subject: Subject) => unknown;
  /** The address of the object, where it is shown then. */
  opens?: (item: Item) => string;
  /** Is announced. */
  told?: string | ((subject: Subject) => string);
  /** Done in the place of a POST. @param given the values of the question's form. Throws what goes wrong. */
  does?: (subject: Subject, given: ApiObject) => Promise<Outcome<Item> | undefined>;
}

export interface Outcome<Item> {
  /** The object as it is now. */
  item?: Item;
  /** True of an object that was deleted. */
  isGone?: boolean;
  /** It is announced. */
  told?: string;
  /** It is done after the question is closed. */
  next?: () => unknown;
}

/**
 * Deletes an object after a confirmation.
 * @param path of the list
 * @param one the word for the object
 * @param effect what is told of it before
 */
export function deletion<Item extends { id: string }>(
  path: string,
  one: string,
  effect: (item: Item) => string,
): Action<Item> {
  return {
    label: "Delete",
    icon: "trash",
    isDangerous: true,
    asks: (item) => ({ title: `Delete this ${one}?`, text: effect(item) }),
    async does({ id }) {
      await callJson(`${path}/${encodeURIComponent(id)}`, { method: "DELETE" });
      return { isGone: true, told: `The ${one} was deleted.` };
    },
  };
}

function textOf<Subject>(text: string | ((subject: Subject) => string), subject: Subject) {
  return typeof text === "string" ? text : text(subject);
}

export class Actions<Item extends { id: string }> {
  #took;
  #said;
  /** Ids of objects with which something is being done. */
  #busy: Set<string> = new Set();

  /**
   * @param took Called after an action.
   * @param said Called with the fault of an action, which is empty when one begins or succeeds.
   */
  constructor(took: (outcome: Outcome<Item>, id: string) => void, said: (fault: string) => void) {
    this.#took = took;
    this.#said = said;
  }

  /** The buttons of an object. `isNamed`: their names are seen beside the icons. */
  buttons(actions: readonly Action<Item>[], item: Item, name: string, isNamed = false) {
    return html`<div class="buttons">${actions.map((each) => this.button(each, item, item.id, name, isNamed))}</div>`;
  }

  button<Subject>(action: Action<Subject, Item>, subject: Subject, id: string, name = "", isNamed = true) {
    const { label, icon: image, isDangerous, isMain, needs, isFor, href } = action;
    if ((needs && !may(needs)) || isFor?.(subject) === false) return nothing;
    const text = textOf(label, subject);
    const whole = `${text} ${name}`.trim();
    const look = `button ${isNamed ? "" : "bare"} ${isDangerous ? "danger" : ""} ${isMain ? "primary" : ""}`;
    const inner = html`${icon(image)}<span>${text}</span>`;
    return href
      ? html`<a class=${look} title=${text} aria-label=${whole} href=${href(subject)}>${inner}</a>`
      : html`<button type="button" class=${look} title=${text} aria-label=${whole} aria-disabled=${String(this.#busy.has(id))} @click=${() => void this.do(action, subject, id)}>${inner}</button>`;
  }

  /** Asks about an action, and does it. */
  async do<Subject>(action: Action<Subject, Item>, subject: Subject, id: string) {
    if (this.#busy.has(id)) return;
    this.#busy.add(id);
    this.#said("");
    let fault = "";
    try {
      await this.#askAndDo(action, subject, id);
    } catch (error) {
      fault = messageWithField(error);
    }
    this.#busy.delete(id);
    this.#said(fault);
  }

  async #askAndDo<Subject>(action: Action<Subject, Item>, subject: Subject, id: string) {
    const { label, asks, posts, body = (given) => given, opens, told = "", does, isDangerous } = action;
    let outcome: Outcome<Item> = {};
    const work = async (given: ApiObject) => {
      if (posts) {
        const item: Item = await callJson(posts(subject), { method: "POST", body: await body(given, subject) });
        if (opens) location.hash = opens(item);
        outcome = { item, told: textOf(told, subject) };
      } else outcome = (await does?.(subject, given)) ?? {};
    };
    const question = await asks?.(subject);
    const name = textOf(label, subject);
    if (!question) await work({});
    else if (!(await askFor({ title: name, action: name, isDangerous, ...question }, work))) return;
    if (outcome.told) announce(outcome.told);
    this.#took(outcome, id);
    await outcome.next?.();
  }
}
