import { type ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import { parseConversationId, responseId } from "@responses-edge/responses-api/ids";
import { isJsonObject } from "@responses-edge/responses-api/json";
import { type EventsLine, eventText, type HomeBegin, type KeptLine, type TurnLine } from "../store/home/home-lines.ts";

/**
 * Checks the lines of one home together. The schema has checked each line; this finds contradictions that no home of
 * this server could have exported. Every function throws the 400 that names the field.
 */

/** The most turns of an imported home. */
const MAX_TURNS = 100_000;

export class ImportedHome {
  readonly id: string;
  /** Ids of responses that were under way, and are not in the export. */
  readonly inProgress: readonly string[];
  /** The turn that each turn continues. */
  readonly #parents = new Map<string, string | null>();
  readonly #positions = new Set<number>();
  #hasConversation = false;
  /** The response whose events may come next, and the number of the next one. */
  #log: { response: string; next: number } | undefined;

  constructor({ id, in_progress: inProgress }: HomeBegin) {
    this.id = id;
    this.inProgress = inProgress;
  }

  get turns(): number {
    return this.#parents.size;
  }

  /** Takes the next line. */
  add(line: Exclude<KeptLine, HomeBegin>): void {
    switch (line.object) {
      case "conversation":
        if (this.#hasConversation || this.turns > 0)
          throw invalid("object", "A 'conversation' may come only once, right after its 'home'.");
        if (parseConversationId(line.id)?.home !== this.id)
          throw invalid("id", `the conversation is not one of home '${this.id}'.`);
        this.#hasConversation = true;
        return;
      case "response.events":
        this.#events(line);
        return;
      default:
        this.#turn(line);
    }
  }

  /** Ends the home. It must be complete. */
  end({ id, turns }: { id: string; turns: number }): void {
    if (id !== this.id) throw invalid("id", `expected '${this.id}', the home that the lines before belong to.`);
    if (turns !== this.turns) throw invalid("turns", `the lines before have ${this.turns} turns.`);
    this.#checkAncestors();
  }

  #turn(line: TurnLine): void {
    const { id, position } = line.turn;
    const address = { home: this.id, turn: id };
    this.#log = undefined;
    if (line.object === "response") {
      if (line.id !== responseId(address))
        throw invalid("id", `expected '${responseId(address)}', which home and turn give.`);
      this.#log = { response: line.id, next: 0 };
    }
    if (this.#parents.has(id)) throw invalid("turn.id", `an earlier line of the home has the turn '${id}'.`);
    if (this.turns === MAX_TURNS) throw invalid("turn", `a home may have at most ${MAX_TURNS} turns.`);
    this.#parents.set(id, line.turn.parent);
    if (position === null) return;
    if (this.#positions.has(position))
      throw invalid("turn.position", `another turn of the home has the position ${position}.`);
    this.#positions.add(position);
  }

  #events({ response_id: response, from, events }: EventsLine): void {
    if (this.#log?.response !== response) {
      throw invalid("response_id", "events must follow their response, and this is not its id.");
    }
    if (from !== this.#log.next) throw invalid("from", `expected ${this.#log.next}, the number of the next event.`);
    for (const [index, event] of events.entries()) {
      if (!isEvent(eventText(event), from + index))
        throw invalid(`events[${index}]`, `expected the event with the sequence number ${from + index}.`);
    }
    this.#log.next += events.length;
  }

  /** A turn that is its own ancestor would be read for ever. */
  #checkAncestors(): void {
    const checked = new Set<string>();
    for (const turn of this.#parents.keys()) {
      const walked = new Set<string>();
      for (let at: string | null = turn; at !== null && !checked.has(at); at = this.#parents.get(at) ?? null) {
        if (walked.has(at)) throw invalid("turn.parent", `the turn '${at}' is its own ancestor.`);
        walked.add(at);
      }
      for (const each of walked) checked.add(each);
    }
  }
}

/** True if a text is the event of this number in a log's form: readers get it as their frame without a change. */
function isEvent(text: string, number: number): boolean {
  if (!/^\{"type":"[a-z0-9_.]{1,128}"[,}]/.test(text) || /[\n\r]/.test(text)) return false;
  try {
    const value: unknown = JSON.parse(text);
    return isJsonObject(value) && value.sequence_number === number;
  } catch {
    return false;
  }
}

function invalid(param: string, message: string): ApiError {
  return invalidRequest(param, `Invalid '${param}': ${message}`);
}
