import { Buffer } from "node:buffer";
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";
import { deflateRawSync, inflateRawSync } from "node:zlib";
import { structureFault } from "@responses-edge/bounded-io/json-text";
import { list } from "@responses-edge/bounded-io/schemas/collections";
import { MAX_ITEMS } from "@responses-edge/responses-api/create-fields";
import { MAX_SEALED_LENGTH } from "@responses-edge/responses-api/items/reasoning";
import { type InputItem, type Item, inputItem, isKept } from "@responses-edge/responses-api/items/registry";
import { z } from "zod";
import type { CompactionCodec, CompactionContent, CompactionFault, Opened, Sealer, SealPurpose } from "./sealing.ts";

/**
 * Authenticated encryption of the reasoning and the compactions that clients keep for this server.
 *
 * re1 . <kid> . base64url( nonce (12) | AES-256-GCM( form (1) | JSON [model, payload] ) | tag (16) )
 *
 * The key is HKDF-SHA-256 of the operator's key `kid`, for one tenant and one purpose, so that another tenant's blob
 * fails its authentication. The model is inside, so that another model's blob can be told from another tenant's.
 */

/** An operator's key: its name, and its secret. */
export interface EncryptionKey {
  kid: string;
  secret: Uint8Array;
}

const VERSION = "re1";

/** The longest token without its last part. */
const MAX_HEAD_LENGTH = 48;

const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const KEY_BYTES = 32;

/** Forms of the sealed content. A form that this version does not know is unreadable. */
const PLAIN_JSON = 1;
const DEFLATED_JSON = 2;

/** Shorter texts do not get smaller. */
const MIN_DEFLATED_BYTES = 256;

/** Most times by which an opened payload is larger than its blob: a short blob cannot cause much work. */
export const MAX_INFLATION = 8;

/**
 * The sealer of a tenant and a model, by vLLM's name of the model. Undefined without keys. The first key seals, all of
 * them open.
 */
export function createSealer(keys: readonly EncryptionKey[], tenant: string, model: string): Sealer | undefined {
  const [first] = keys;
  return first && new TenantSealer(first, keys, tenant, model);
}

class TenantSealer implements Sealer {
  readonly #first: EncryptionKey;
  readonly #keys: ReadonlyMap<string, EncryptionKey>;
  readonly #tenant: string;
  readonly #model: string;
  /** By purpose and `kid`. */
  readonly #derived = new Map<string, Uint8Array>();

  constructor(first: EncryptionKey, keys: readonly EncryptionKey[], tenant: string, model: string) {
    this.#first = first;
    this.#keys = new Map(keys.map((key) => [key.kid, key]));
    this.#tenant = tenant;
    this.#model = model;
  }

  seal(purpose: SealPurpose, payload: unknown): string {
    const head = `${VERSION}.${this.#first.kid}.`;
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv("aes-256-gcm", this.#keyOf(this.#first, purpose), nonce);
    cipher.setAAD(associated(head, purpose));
    const sealed = [nonce, cipher.update(packed([this.#model, payload])), cipher.final(), cipher.getAuthTag()];
    return head + Buffer.concat(sealed).toString("base64url");
  }

  open(purpose: SealPurpose, blob: string): Opened {
    const token = parseToken(blob);
    const key = token && this.#keys.get(token.kid);
    if (!key) return { reason: "unreadable" };
    const packedJson = this.#decrypt(key, purpose, token);
    if (!packedJson) return { reason: "organization_mismatch" };
    const opened = unpacked(packedJson);
    if (!opened) return { reason: "unreadable" };
    const [model, payload] = opened;
    return model === this.#model ? { payload } : { reason: "model_mismatch" };
  }

  /** Undefined if it is not authentic. */
  #decrypt(key: EncryptionKey, purpose: SealPurpose, { head, bytes }: Token): Uint8Array | undefined {
    const tagAt = bytes.length - TAG_BYTES;
    const decipher = createDecipheriv("aes-256-gcm", this.#keyOf(key, purpose), bytes.subarray(0, NONCE_BYTES), {
      authTagLength: TAG_BYTES,
    });
    decipher.setAAD(associated(head, purpose));
    decipher.setAuthTag(bytes.subarray(tagAt));
    try {
      return Buffer.concat([decipher.update(bytes.subarray(NONCE_BYTES, tagAt)), decipher.final()]);
    } catch {
      return undefined;
    }
  }

  #keyOf({ kid, secret }: EncryptionKey, purpose: SealPurpose): Uint8Array {
    const name = `${purpose}.${kid}`;
    let key = this.#derived.get(name);
    if (!key) {
      // A tenant's name has no line break (API_KEYS).
      const info = `responses-edge\n${purpose}\n${this.#tenant}`;
      key = new Uint8Array(hkdfSync("sha256", secret, kid, info, KEY_BYTES));
      this.#derived.set(name, key);
    }
    return key;
  }
}

interface Token {
  kid: string;
  /** Everything before the bytes. */
  head: string;
  bytes: Buffer;
}

/** The parts of a token; undefined if this server cannot have made it. */
function parseToken(blob: string): Token | undefined {
  if (blob.length > MAX_SEALED_LENGTH || !blob.startsWith(`${VERSION}.`)) return undefined;
  const end = blob.slice(0, MAX_HEAD_LENGTH).indexOf(".", VERSION.length + 1);
  if (end === -1) return undefined;
  const text = blob.slice(end + 1);
  const bytes = Buffer.from(text, "base64url");
  // The decoder ignores invalid characters. Of all texts that decode to the same bytes, only one is a token.
  const isWhole = bytes.length > NONCE_BYTES + TAG_BYTES && bytes.toString("base64url") === text;
  return isWhole ? { kid: blob.slice(VERSION.length + 1, end), head: blob.slice(0, end + 1), bytes } : undefined;
}

/** The additional authenticated data of the tag. */
function associated(head: string, purpose: SealPurpose): Buffer {
  return Buffer.from(head + purpose);
}

function packed(content: [model: string, payload: unknown]): Uint8Array {
  const json = Buffer.from(JSON.stringify(content));
  if (json.length >= MIN_DEFLATED_BYTES) {
    const deflated = deflateRawSync(json);
    const pays = deflated.length < json.length && deflated.length * MAX_INFLATION > json.length;
    if (pays) return Buffer.concat([Uint8Array.of(DEFLATED_JSON), deflated]);
  }
  return Buffer.concat([Uint8Array.of(PLAIN_JSON), json]);
}

function unpacked(bytes: Uint8Array): [model: unknown, payload: unknown] | undefined {
  const content = bytes.subarray(1);
  try {
    const json = bytes[0] === DEFLATED_JSON ? inflateRawSync(content, inflation(content)) : content;
    if (bytes[0] !== DEFLATED_JSON && bytes[0] !== PLAIN_JSON) return undefined;
    return JSON.parse(Buffer.from(json).toString()) as [unknown, unknown];
  } catch {
    return undefined;
  }
}

function inflation({ length }: Uint8Array) {
  return { maxOutputLength: length * MAX_INFLATION };
}

/**
 * The content of compaction items: sealed if the operator has keys, otherwise readable JSON after `cmp1.`. It is
 * checked like any other input, wherever it comes from.
 */

const PLAIN = "cmp1.";

/** As many as one request may have. */
const items = list(inputItem, { max: MAX_ITEMS });
const content = z.object({ v: z.literal(1), before: items, summary: z.string(), after: items });

export function compactionCodec(keys: readonly EncryptionKey[], tenant: string): CompactionCodec {
  let made: Sealer | undefined;
  /** Made on use, because few turns have a compaction. A conversation may change its model. */
  const sealer = () => {
    made ??= createSealer(keys, tenant, "");
    return made;
  };
  return {
    write(written) {
      const payload = { v: 1, ...written };
      return sealer()?.seal("compaction", payload) ?? PLAIN + JSON.stringify(payload);
    },
    read(text, isStored) {
      if (text.startsWith(PLAIN)) {
        if (sealer() && !isStored) return unreadable("this server encrypts its own, and this one is not encrypted");
        return parsed(plainPayload(text.slice(PLAIN.length)));
      }
      const opened = sealer()?.open("compaction", text);
      if (!opened) return unreadable("this server has not made it, or no longer has its key");
      if (opened.reason === undefined) return parsed(opened.payload);
      return unreadable(
        opened.reason === "organization_mismatch"
          ? "it was made for another API key's organization, or has been changed"
          : "it is incomplete, or this server has not made it",
      );
    },
  };
}

function plainPayload(json: string): unknown {
  if (structureFault(Buffer.from(json))) return undefined;
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

function parsed(payload: unknown): CompactionContent | CompactionFault {
  const { data } = content.safeParse(payload);
  if (!data) return unreadable("it is incomplete, or has been changed");
  const { before, summary, after } = data;
  if (!before.every(isItem) || !after.every(isItem)) return unreadable("it has been changed");
  return { before, summary, after };
}

/** True if an item is self-contained: no reference, and no compaction within a compaction. */
function isItem(item: InputItem): item is Item {
  return isKept(item) && item.type !== "compaction";
}

function unreadable(why: string): CompactionFault {
  return { fault: `This compaction item cannot be read: ${why}.` };
}
