import { Buffer } from "node:buffer";
import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";

/**
 * The text of a key that this server makes:
 *
 * sk-re- RRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRR CCCCCCCC random (43), check (8), both base64url
 *
 * The check is an HMAC of the random part under the mint's secret, so that an invented text is refused without a
 * look-up and without being remembered. It proves nothing else: a key is found by its SHA-256.
 */
const KEY = /^sk-re-[A-Za-z0-9_-]{51}$/;
const PREFIX = "sk-re-";
const RANDOM_BYTES = 32;
const CHECK_LENGTH = 8;

/** Tells whether a text has the form of a key that this server makes. */
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

/** The SHA-256 (hex) by which a key is stored and found. */
export function keyHash(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** A key as lists show it: enough to recognise it. */
export function redactedKey(text: string): string {
  return `${PREFIX}…${text.slice(-4)}`;
}

function checkOf(body: string, mint: string): string {
  return createHmac("sha256", mint).update(body).digest("base64url").slice(0, CHECK_LENGTH);
}
