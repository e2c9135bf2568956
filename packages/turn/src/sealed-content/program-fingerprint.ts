import { Buffer } from "node:buffer";
import { createHash, createHmac, hkdfSync, timingSafeEqual } from "node:crypto";
import type { EncryptionKey } from "./sealer.ts";
import type { ProgramFingerprints } from "./sealing.ts";

/**
 * The fingerprints of programs: what the client of an unstored conversation gives back with a program, so that this server
 * runs again what its model has written, at the time at which it began.
 *
 * pf1 . milliseconds in base 36 . base64url( HMAC-SHA-256 of JSON [call_id, milliseconds, code] )
 *
 * The key is HKDF-SHA-256 of the operator's key, for one tenant. Without keys the last part is a plain SHA-256, which finds
 * changes that were not meant.
 */

const VERSION = "pf1";
const KEY_BYTES = 32;
const FORM = /^pf1\.([0-9a-z]{1,10})\.([A-Za-z0-9_-]{43})$/;

/** The fingerprints of a tenant's programs. The first key makes them, all of them check. */
export function programFingerprints(keys: readonly EncryptionKey[], tenant: string): ProgramFingerprints {
  const digest = (key: EncryptionKey | undefined, content: string): Buffer => {
    if (!key) return createHash("sha256").update(`${tenant}\n${content}`).digest();
    const info = `responses-edge\nprogram\n${tenant}`;
    return createHmac("sha256", Buffer.from(hkdfSync("sha256", key.secret, key.kid, info, KEY_BYTES)))
      .update(content)
      .digest();
  };
  return {
    make({ call_id, code }, startedAt) {
      const content = JSON.stringify([call_id, startedAt, code]);
      return `${VERSION}.${startedAt.toString(36)}.${digest(keys[0], content).toString("base64url")}`;
    },
    startOf({ call_id, code, fingerprint }, isStored) {
      const [, time, mac] = FORM.exec(fingerprint) ?? [];
      if (time === undefined || mac === undefined) return undefined;
      const startedAt = Number.parseInt(time, 36);
      const content = JSON.stringify([call_id, startedAt, code]);
      const given = Buffer.from(mac, "base64url");
      const isMade = (key: EncryptionKey | undefined) => timingSafeEqual(digest(key, content), given);
      return isStored || (keys.length > 0 ? keys.some(isMade) : isMade(undefined)) ? startedAt : undefined;
    },
  };
}
