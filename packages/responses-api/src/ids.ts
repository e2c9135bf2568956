import { createHash } from "node:crypto";

/**
 * Ids that say where their object lives (docs/storage.md).
 *
 *     resp_ HHHHHHHHHHHHHHHHHHHHHH TTTTTTTTTT            home (22), turn (10)
 *     msg_  HHHHHHHHHHHHHHHHHHHHHH TTTTTTTTTT o 3        … then i(nput) or o(utput) and the item's index in base62
 *
 * The home names the Durable Object that keeps whole conversation trees, so no directory is needed; the turn names the
 * row in it; the rest names the item in the row. A home whose key begins with `SHARED_MARK` has several trees, and the
 * turns of each have the same two first characters; any other home is one tree. All ids stay below OpenAI's 64 characters.
 */
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const HOME_LENGTH = 22;
const TURN_LENGTH = 10;
const TREE_LENGTH = 2;
/** A random key begins with this once in 57 billion times. */
const SHARED_MARK = "000000";
const RESPONSE_ID = /^resp_([0-9A-Za-z]{22})([0-9A-Za-z]{10})$/;
const CONVERSATION_ID = /^conv_([0-9A-Za-z]{22})([0-9A-Za-z]{10})$/;
const FILE_ID = /^file-([0-9A-Za-z]{22})$/;
const UPLOAD_ID = /^upload_([0-9A-Za-z]{22})$/;
const PART_ID = /^part_([0-9A-Za-z]{22})([0-9A-Za-z]{1,4})$/;
const CONTAINER_ID = /^cntr_[0-9A-Za-z]{32}$/;
const STORE_ID = /^vs_([0-9A-Za-z]{22})$/;
const ITEM_ID = /^[a-z]+_([0-9A-Za-z]{22})([0-9A-Za-z]{10})([io])([0-9A-Za-z]{1,6})$/;

/** OpenAI's limit on every id (`string_above_max_length` beyond). */
export const MAX_ID_LENGTH = 64;

/** The place of a response: `home` names its Durable Object (within a tenant), `turn` its row there. */
export interface TurnAddress {
  readonly home: string;
  readonly turn: string;
}

/**
 * The place of a conversation tree: its home, and the beginning `tree` of its turns' names, which is empty if the home
 * is one tree.
 */
export interface TreeAddress {
  readonly home: string;
  readonly tree: string;
}

/** The place of an item: its turn's input or output, and an index. */
interface ItemAddress extends TurnAddress {
  readonly side: "input" | "output";
  readonly index: number;
}

/** `length` random characters of base62, ~5.95 bits each. */
function randomBase62(length: number): string {
  return toBase62(crypto.getRandomValues(new Uint8Array(length)));
}

/** `length` characters of base62 that follow from a text, at most 32. */
function hashBase62(text: string, length: number): string {
  return toBase62(createHash("sha256").update(text).digest().subarray(0, length));
}

function toBase62(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += ALPHABET[byte % 62];
  return text;
}

/** A number in base62, as in ids. */
export function base62(value: number): string {
  let text = "";
  let rest = value;
  do {
    text = ALPHABET[rest % 62] + text;
    rest = Math.floor(rest / 62);
  } while (rest > 0);
  return text;
}

function fromBase62(text: string): number {
  let value = 0;
  for (const char of text) value = value * 62 + ALPHABET.indexOf(char);
  return value;
}

/** The key of a new home: 128 random bits. */
export function newHome(): string {
  return randomBase62(HOME_LENGTH);
}

/** The key of a new home of several trees: 95 random bits. */
export function newSharedHome(): string {
  return SHARED_MARK + randomBase62(HOME_LENGTH - SHARED_MARK.length);
}

/** How many trees of a home have different names. */
export const TREE_NAMES = ALPHABET.length ** TREE_LENGTH;

/** The name of a tree in a home of several, by its number there. Later names sort after earlier ones. */
export function treeName(no: number): string {
  return `${ALPHABET[Math.floor(no / ALPHABET.length) % ALPHABET.length]}${ALPHABET[no % ALPHABET.length]}`;
}

/** The address of a new turn: in the given home and tree, or in a new home. */
export function newTurnAddress(home = newHome(), tree = ""): TurnAddress {
  return { home, turn: tree + randomBase62(TURN_LENGTH - tree.length) };
}

/** The name of a turn: its number in a series. A turn that is made twice under one name has one address. */
export interface TurnName {
  series: string;
  no: number;
}

/** The tree of a named turn that continues nothing. Consecutive turns of a series have one home, `perHome` each. */
export function namedTree({ series, no }: TurnName, perHome: number): TreeAddress {
  const at = no % perHome;
  const key = `home\n${series}\n${Math.floor(no / perHome)}`;
  if (perHome === 1) return { home: hashBase62(key, HOME_LENGTH), tree: "" };
  return { home: SHARED_MARK + hashBase62(key, HOME_LENGTH - SHARED_MARK.length), tree: treeName(at) };
}

/** The address of a named turn in a tree. */
export function namedTurnAddress({ series, no }: TurnName, { home, tree }: TreeAddress): TurnAddress {
  return { home, turn: tree + hashBase62(`turn\n${series}\n${no}`, TURN_LENGTH - tree.length) };
}

/** The tree of a turn. */
export function treeOf({ home, turn }: TurnAddress): TreeAddress {
  return { home, tree: home.startsWith(SHARED_MARK) ? turn.slice(0, TREE_LENGTH) : "" };
}

export function responseId(address: TurnAddress): string {
  return `resp_${address.home}${address.turn}`;
}

/** The address in a response id, or undefined when this server cannot have made it. */
export function parseResponseId(id: string): TurnAddress | undefined {
  const match = RESPONSE_ID.exec(id);
  return match ? { home: match[1] as string, turn: match[2] as string } : undefined;
}

/** The id of a conversation: it lives in a home of its own, and its local part is like a turn's. */
export function conversationId(address: TurnAddress): string {
  return `conv_${address.home}${address.turn}`;
}

/** The address in a conversation id, or undefined when this server cannot have made it. */
export function parseConversationId(id: string): TurnAddress | undefined {
  const match = CONVERSATION_ID.exec(id);
  return match ? { home: match[1] as string, turn: match[2] as string } : undefined;
}

/** The key of a new file: 131 random bits. With its tenant it names the object that has its bytes. */
export function newFileKey(): string {
  return randomBase62(HOME_LENGTH);
}

/** The id of a file, in OpenAI's form: with a hyphen. */
export function fileId(key: string): string {
  return `file-${key}`;
}

/** The key in a file's id, or undefined when this server cannot have made it. */
export function parseFileId(id: string): string | undefined {
  return FILE_ID.exec(id)?.[1];
}

/** The id of an upload. The file that it becomes has the same key. */
export function uploadId(key: string): string {
  return `upload_${key}`;
}

/** The key in an upload's id, or undefined when this server cannot have made it. */
export function parseUploadId(id: string): string | undefined {
  return UPLOAD_ID.exec(id)?.[1];
}

/** The id of a part: its upload's key and its number. */
export function partId(key: string, part: number): string {
  return `part_${key}${base62(part)}`;
}

/** The number in the id of a part of an upload, or undefined if the part belongs to another upload. */
export function parsePartId(id: string, key: string): number | undefined {
  const match = PART_ID.exec(id);
  return match?.[1] === key ? fromBase62(match[2] as string) : undefined;
}

/** The id of a new container. */
export function newContainerId(): string {
  return `cntr_${randomBase62(HOME_LENGTH + TURN_LENGTH)}`;
}

/** The id of the container that a turn makes, unless it uses another one. */
export function containerIdOf({ home, turn }: TurnAddress): string {
  return `cntr_${home}${turn}`;
}

/** Tells whether this server can have made a container's id. */
export function isContainerId(id: string): boolean {
  return CONTAINER_ID.test(id);
}

/** A key for a new vector store. */
export function newStoreKey(): string {
  return randomBase62(HOME_LENGTH);
}

export function storeId(key: string): string {
  return `vs_${key}`;
}

/** The key in a vector store's id, or undefined when this server cannot have made it. */
export function parseStoreId(id: string): string | undefined {
  return STORE_ID.exec(id)?.[1];
}

/** An id for a new batch of files of a vector store. */
export function newBatchId(): string {
  return `vsfb_${randomBase62(HOME_LENGTH)}`;
}

/** An id for an answer of `/v1/moderations`, which nobody looks up. */
export function newModerationId(): string {
  return `modr_${randomBase62(HOME_LENGTH)}`;
}

/** The address in an item id, or undefined when this server cannot have made it. */
export function parseItemId(id: string): ItemAddress | undefined {
  const match = ITEM_ID.exec(id);
  if (!match) return undefined;
  return {
    home: match[1] as string,
    turn: match[2] as string,
    side: match[3] === "i" ? "input" : "output",
    index: fromBase62(match[4] as string),
  };
}

/** A new id that ties a function call to its output. */
export function newCallId(): string {
  return `call_${randomBase62(24)}`;
}
