import { hashOf } from "@responses-edge/engines/hash";
import { parseResponseId, responseId, treeOf } from "@responses-edge/responses-api/ids";
import type { ListedResponse } from "@responses-edge/responses-api/platform/listed-response";
import {
  inputPreview,
  messageTexts,
  outputPreview,
  readPrefix,
  readSuffix,
} from "@responses-edge/responses-api/platform/previews";
import type { ResponseObject, ResponseTiming } from "@responses-edge/responses-api/response";
import { shownTiming } from "@responses-edge/turn/timing";

/** A response as its tenant's index gets it. */

/**
 * UTF-16 units of input and output that are read for an entry (of a long input the last ones, if they have a message of its user), and
 * those that are indexed, by which a search finds a response.
 */
const READ_LENGTH = 131_072;
const LAST_LENGTH = 16_384;
const SEARCHED_LENGTH = 4_096;

export interface IndexEntry {
  id: string;
  /** Unix milliseconds. */
  createdAt: number;
  status: ResponseObject["status"];
  /** The response as it is listed, as JSON, without its cost. */
  body: string;
  /** The tags that a filter compares: `tagOf`. */
  tags: string[];
  text: string;
}

/** A response as its home stores it. */
export interface KeptResponse {
  turn: string;
  /** Unix milliseconds. */
  createdAt: number;
  /** JSON texts, as `SettledTurn` has them. */
  input: string;
  output: string;
  response: string;
  timing: string | null;
}

type Head = Omit<ResponseObject, "output" | "object">;

/** A word that no text contains, for a model, a status, a conversation, a pair of metadata, or a tree. Two of them collide once in 10¹⁹ times. */
export function tagOf(kind: "model" | "status" | "conversation" | "metadata" | "tree", ...names: string[]): string {
  const { high, low } = hashOf(JSON.stringify([kind, ...names]));
  return `${(BigInt(high >>> 0) << 32n) | BigInt(low >>> 0)}`;
}

/** The tag of the tree of a response. */
export function treeTag(id: string): string {
  const address = parseResponseId(id);
  const { home, tree } = address ? treeOf(address) : { home: id, tree: "" };
  return tagOf("tree", home, tree);
}

/** The times of a response that its entry has. */
function summaryOf(
  timing: ResponseTiming | null,
): Pick<ListedResponse, "server" | "waited_ms" | "first_token_ms" | "attempts"> {
  if (!timing) return { server: null, waited_ms: null, first_token_ms: null, attempts: null };
  const { rounds, waited_ms } = timing;
  const first = rounds.find(({ purpose, first_token_ms }) => purpose !== "summary" && first_token_ms !== null);
  return {
    server: rounds.at(-1)?.server ?? null,
    waited_ms,
    first_token_ms: first?.first_token_ms ?? null,
    attempts: rounds.reduce((sum, { attempts }) => sum + attempts, 0),
  };
}

export function entryOf(
  home: string,
  { turn, createdAt, input, output, response, timing: kept }: KeptResponse,
  isTakenOut: (id: string) => boolean,
): IndexEntry {
  const head = JSON.parse(response) as Head;
  const asked = readSuffix(input, LAST_LENGTH) ?? readPrefix(input.slice(0, READ_LENGTH));
  const said = readPrefix(output.slice(0, READ_LENGTH));
  const { model, status, conversation, metadata, completed_at } = head;
  const timing = kept === null ? null : shownTiming(kept, { model, items: [] });
  const completed = completed_at === null ? null : completed_at * 1000;
  const end = timing ? timing.accepted_at + timing.settled_ms : completed;
  const id = responseId({ home, turn });
  const body: Omit<ListedResponse, "cost_usd" | "tree"> = {
    id,
    object: "response.summary",
    created_at: head.created_at,
    completed_at,
    status,
    background: head.background,
    model,
    previous_response_id: head.previous_response_id,
    conversation,
    metadata,
    usage: head.usage,
    error: head.error,
    incomplete_details: head.incomplete_details,
    duration_ms: end === null ? null : Math.max(0, end - createdAt),
    ...summaryOf(timing),
    input: inputPreview(asked, isTakenOut),
    output: outputPreview(said, isTakenOut),
  };
  const pairs = Object.entries(metadata);
  return {
    id,
    createdAt,
    status,
    body: JSON.stringify(body),
    tags: [
      treeTag(id),
      tagOf("model", model),
      tagOf("status", status),
      ...(conversation ? [tagOf("conversation", conversation.id)] : []),
      ...pairs.map(([key, value]) => tagOf("metadata", key, value)),
    ],
    text: [asked, said].map((items) => messageTexts(items, isTakenOut, SEARCHED_LENGTH)).join("\n"),
  };
}
