import { ItemView } from "./item-view.ts";
import type { ApiObject } from "./json.ts";

/** The items of a response on the page, made from its events as they arrive or from the whole response. */
export class Answer {
  element = document.createElement("div");
  /** The response in the last event that had it. */
  response: ApiObject | undefined;
  #items: ItemView[] = [];

  constructor() {
    this.element.className = "answer stack gap-3";
  }

  /** The items so far. */
  get items() {
    return this.#items.filter((each) => each !== undefined).map(({ item }) => item);
  }

  /** Shows the outputs of its calls, and the decisions about its requests for approval, in their cards. Gives those that have one. */
  showOutputs(outputs: readonly ApiObject[]): ApiObject[] {
    for (const view of this.#items) view?.setOutput(outputs.find((output) => answers(output, view.item)));
    return outputs.filter((output) => this.items.some((item) => answers(output, item)));
  }

  /** Takes the next event of the stream. */
  apply(event: ApiObject) {
    if (event.response) this.response = event.response;
    switch (event.type) {
      case "response.output_item.added":
        this.#setItem(event.output_index, event.item, true);
        return;
      case "response.output_item.done":
        this.#setItem(event.output_index, event.item);
        return;
      case "response.completed":
      case "response.failed":
      case "response.incomplete":
        this.show(event.response);
        return;
      default:
        if (typeof event.output_index === "number") this.#items[event.output_index]?.apply(event);
    }
  }

  /** Shows a response that was read as a whole. */
  show(response: ApiObject) {
    this.response = response;
    const output = Array.isArray(response.output) ? response.output : [];
    for (const [index, item] of output.entries()) this.#setItem(index, item);
    for (const extra of this.#items.splice(output.length)) extra?.element.remove();
  }

  /** @param isLive true while it is being made */
  #setItem(index: number, item: ApiObject, isLive: boolean = false) {
    const known = this.#items[index];
    if (known) {
      known.set(item);
      return;
    }
    const made = new ItemView(item, { items: () => this.items, response: () => this.response }, isLive);
    this.#items[index] = made;
    const next = this.#items.slice(index + 1).find((each) => each !== undefined);
    this.element.insertBefore(made.element, next?.element ?? null);
  }
}

/** Tells whether an input item is the output of a call, or the decision about a request for approval. */
function answers(output: ApiObject, { type, id, call_id: call }: ApiObject) {
  if (type === "mcp_approval_request") return output.approval_request_id === id;
  return call !== undefined && output.call_id === call && output.type === `${type}_output`;
}
