import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { systemCode } from "./refusal.ts";

/** A certificate with its key for workerd's https socket: PEM files, by absolute paths. */
export interface KeyPairFiles {
  /** The server's own certificate first, then those between it and an authority that clients know. */
  certificateFile: string;
  keyFile: string;
}

/**
 * The fault of a pair of files at a time (Unix milliseconds); undefined if there is none. workerd would serve an
 * expired certificate without a warning, and exit with a key of another certificate.
 */
export function faultOf({ certificateFile, keyFile }: KeyPairFiles, now: number): string | undefined {
  let certificate: X509Certificate;
  try {
    certificate = new X509Certificate(readFileSync(certificateFile));
  } catch (error) {
    return `TLS_CERTIFICATE_FILE: expected a certificate in PEM (${systemCode(error)})`;
  }
  const { validFromDate: from, validToDate: to } = certificate;
  if (to.getTime() <= now) return `TLS_CERTIFICATE_FILE: the certificate expired on ${to.toISOString()}`;
  if (from.getTime() > now) return `TLS_CERTIFICATE_FILE: the certificate is not valid before ${from.toISOString()}`;
  try {
    const isIts = certificate.checkPrivateKey(createPrivateKey(readFileSync(keyFile)));
    return isIts ? undefined : "TLS_KEY_FILE: expected the key of TLS_CERTIFICATE_FILE";
  } catch (error) {
    return `TLS_KEY_FILE: expected a private key in PEM without a passphrase (${systemCode(error)})`;
  }
}

/** The end of a certificate, Unix milliseconds; undefined if it cannot be read. */
export function expiryOf({ certificateFile }: Pick<KeyPairFiles, "certificateFile">): number | undefined {
  try {
    return new X509Certificate(readFileSync(certificateFile)).validToDate.getTime();
  } catch {
    return undefined;
  }
}
