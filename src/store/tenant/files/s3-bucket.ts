import { Buffer } from "node:buffer";
import { AwsV4Signer } from "aws4fetch";
import type { S3Config } from "../../../config/files.ts";
import { type Bucket, LISTED } from "./object-bucket.ts";

/** A bucket that speaks S3's HTTP API: AWS, MinIO, Ceph, Garage, SeaweedFS. Its URLs have the bucket in their path. */

/** Milliseconds until a request counts as failed. No request carries more than a piece. */
const TIMEOUT_MS = 30_000;

/** Objects that are removed concurrently. */
const REMOVED_AT_ONCE = 16;

/** Characters of an answer, or of the runtime's error, that an error quotes. */
const MAX_SHOWN = 200;

export function s3Bucket(config: S3Config): Bucket {
  // The signing keys of a day, derived from the secret key.
  const cache = new Map<string, ArrayBuffer>();
  const ask = async (method: string, name: string, query: Record<string, string> = {}, body = new Uint8Array()) => {
    const path = name.split("/").map(encoded).join("/");
    const url = new URL(`${config.endpoint.replace(/\/+$/, "")}/${encoded(config.bucket)}${path && `/${path}`}`);
    url.search = queryOf(query);
    // Buckets that check the hash find a body that was damaged on its way.
    const headers = { "x-amz-content-sha256": await sha256(body) };
    const signed = await new AwsV4Signer({ method, url: url.href, headers, service: "s3", cache, ...config }).sign();
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const asked = { method, headers: signed.headers, signal, ...(method === "PUT" && { body }) };
    try {
      return await config.fetch(url.href, asked);
    } catch (error) {
      // The runtime's words name neither the endpoint nor the request.
      const why = signal.aborted ? `no answer within ${TIMEOUT_MS / 1000} s` : shown(String(error));
      throw new Error(`${method} at ${url.host} failed: ${why}`);
    }
  };
  const faultOf = async (answer: Response, method: string) =>
    new Error(
      `${method} at ${new URL(config.endpoint).host} was answered ${answer.status}: ${shown(await answer.text())}`,
    );
  return {
    async put(name, bytes) {
      const answer = await ask("PUT", name, {}, bytes.slice());
      if (!answer.ok) throw await faultOf(answer, "PUT");
      await answer.body?.cancel();
    },
    async get(name) {
      const answer = await ask("GET", name);
      if (answer.ok) return new Uint8Array(await answer.arrayBuffer());
      const fault = await faultOf(answer, "GET");
      if (answer.status === 404 && !fault.message.includes("NoSuchBucket")) return null;
      throw fault;
    },
    async list(prefix, after) {
      const cursor = after && { "start-after": after };
      const answer = await ask("GET", "", { "list-type": "2", prefix, "max-keys": String(LISTED), ...cursor });
      if (!answer.ok) throw await faultOf(answer, "GET");
      return [...(await answer.text()).matchAll(/<Key>([^<]*)<\/Key>/g)].map(([, key = ""]) => key);
    },
    async remove(names) {
      for (let at = 0; at < names.length; at += REMOVED_AT_ONCE) {
        const answers = await Promise.all(names.slice(at, at + REMOVED_AT_ONCE).map((name) => ask("DELETE", name)));
        for (const answer of answers) {
          if (!answer.ok && answer.status !== 404) throw await faultOf(answer, "DELETE");
          await answer.body?.cancel();
        }
      }
    },
  };
}

function shown(text: string): string {
  return text.slice(0, MAX_SHOWN);
}

/** A query string in which every special character is escaped. */
function queryOf(parameters: Record<string, string>): string {
  const pairs = Object.entries(parameters).map(([name, value]) => `${encoded(name)}=${encoded(value)}`);
  return pairs.join("&");
}

function encoded(text: string): string {
  return encodeURIComponent(text).replaceAll(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
}

async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  return Buffer.from(await crypto.subtle.digest("SHA-256", bytes)).toString("hex");
}
