import { Buffer } from "node:buffer";
import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";

/**
 * The text of a key that this server makes:
 *
 *     sk-re- RRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRR CCCCCCCC     random (43), check (8), both base64url
 *
 * The check is an HMAC of the random part under the mint's secret, so that a text which somebody has invented is refused
 * where it comes in: it costs no look-up, and no memory of it. It proves nothing else: a key is found by its SHA-256.
 */
const KEY = /^sk-re-[A-Za-z0-9_-]{51}$/;
const PREFIX = "sk-re-";
const RANDOM_BYTES = 32;
const CHECK_LENGTH = 8;

/** Tells whether a text may be a key of this server's making, by its looks. */
export function isMintedForm(text: string): boolean {
  return KEY.test(text);
}

/** Tells whether this mint has made a text of that form. */
export function isMinted(text: string, mint: string): boolean {
  const body = text.slice(0, -CHECK_LENGTH);
  return timingSafeEqual(Buffer.from(checkOf(body, mint)), Buffer.from(text.slice(-CHECK_LENGTH)));
}

/** A new key. `mint` is the mint's secret. */
export function mintKey(mint: string): string {
  const body = PREFIX + randomBytes(RANDOM_BYTES).toString("base64url");
  return body + checkOf(body, mint);
}

/** A new secret for a mint. */
export function newMint(): string {
  return randomBytes(32).toString("base64url");
}

/** How a key is kept, and found: its SHA-256 in hex. */
export function keyHash(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** A key as its lists show it: enough to recognise it by. */
export function redactedKey(text: string): string {
  return `${PREFIX}…${text.slice(-4)}`;
}

function checkOf(body: string, mint: string): string {
  return createHmac("sha256", mint).update(body).digest("base64url").slice(0, CHECK_LENGTH);
}
