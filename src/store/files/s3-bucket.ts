import { Buffer } from "node:buffer";
import type { S3Config } from "../../config/files.ts";
import { type Bucket, LISTED } from "./bucket.ts";

/** A bucket that speaks S3's HTTP API: AWS, MinIO, Ceph, Garage, SeaweedFS. Its URLs have the bucket in their path. */

/** A request that takes longer has failed: none has more than a piece. Milliseconds. */
const TIMEOUT_MS = 30_000;

/** Objects that are removed at a time. */
const REMOVED_AT_ONCE = 16;

/** Characters of an answer that an error is told of. */
const MAX_SHOWN = 200;

export function s3Bucket(config: S3Config): Bucket {
  const ask = async (method: string, name: string, query: Record<string, string> = {}, body = new Uint8Array()) => {
    const path = name.split("/").map(encoded).join("/");
    const url = new URL(`${config.endpoint.replace(/\/+$/, "")}/${encoded(config.bucket)}${path && `/${path}`}`);
    url.search = queryOf(query);
    const headers = await signature({ method, url, body: await sha256(body) }, config, new Date());
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    return config.fetch(url.href, { method, headers, signal, ...(method === "PUT" && { body }) });
  };
  return {
    async put(name, bytes) {
      const answer = await ask("PUT", name, {}, bytes.slice());
      if (!answer.ok) throw await faultOf(answer);
      await answer.body?.cancel();
    },
    async get(name) {
      const answer = await ask("GET", name);
      if (answer.ok) return new Uint8Array(await answer.arrayBuffer());
      const fault = await faultOf(answer);
      if (answer.status === 404 && !fault.message.includes("NoSuchBucket")) return null;
      throw fault;
    },
    async list(prefix, after) {
      const cursor = after && { "start-after": after };
      const answer = await ask("GET", "", { "list-type": "2", prefix, "max-keys": String(LISTED), ...cursor });
      if (!answer.ok) throw await faultOf(answer);
      return [...(await answer.text()).matchAll(/<Key>([^<]*)<\/Key>/g)].map(([, key = ""]) => key);
    },
    async remove(names) {
      for (let at = 0; at < names.length; at += REMOVED_AT_ONCE) {
        const answers = await Promise.all(names.slice(at, at + REMOVED_AT_ONCE).map((name) => ask("DELETE", name)));
        for (const answer of answers) {
          if (!answer.ok && answer.status !== 404) throw await faultOf(answer);
          await answer.body?.cancel();
        }
      }
    },
  };
}

async function faultOf(answer: Response): Promise<Error> {
  return new Error(`S3 answers ${answer.status}: ${(await answer.text()).slice(0, MAX_SHOWN)}`);
}

/** Who asks, and of which region. */
export type Signer = Pick<S3Config, "accessKeyId" | "secretAccessKey" | "region">;

/**
 * The headers of a request, with its signature (AWS Signature Version 4). `body` is the SHA-256 of its body, hex. `others` are headers that
 * are signed, too, by their names in lower case.
 */
export async function signature(
  { method, url, body }: { method: string; url: URL; body: string },
  { accessKeyId, secretAccessKey, region }: Signer,
  at: Date,
  others: Record<string, string> = {},
): Promise<Record<string, string>> {
  const time = at.toISOString().replaceAll(/[-:]|\.\d+/g, "");
  const day = time.slice(0, 8);
  const scope = `${day}/${region}/s3/aws4_request`;
  const own = { ...others, "x-amz-content-sha256": body, "x-amz-date": time };
  const headers = Object.entries({ ...own, host: url.host }).sort(([one], [other]) => (one < other ? -1 : 1));
  const names = headers.map(([name]) => name).join(";");
  const lines = headers.map(([name, value]) => `${name}:${value}\n`).join("");
  const request = [method, url.pathname, queryOf(Object.fromEntries(url.searchParams)), lines, names, body].join("\n");
  const text = ["AWS4-HMAC-SHA256", time, scope, await sha256(Buffer.from(request))].join("\n");
  let key = await hmac(Buffer.from(`AWS4${secretAccessKey}`), day);
  for (const step of [region, "s3", "aws4_request"]) key = await hmac(key, step);
  const signed = (await hmac(key, text)).toString("hex");
  const credential = `Credential=${accessKeyId}/${scope}`;
  return { ...own, authorization: `AWS4-HMAC-SHA256 ${credential},SignedHeaders=${names},Signature=${signed}` };
}

/** A query in the form that is signed: sorted, and with nothing left as it is that might mean something. */
function queryOf(parameters: Record<string, string>): string {
  const pairs = Object.entries(parameters).map(([name, value]) => `${encoded(name)}=${encoded(value)}`);
  return pairs.sort().join("&");
}

function encoded(text: string): string {
  return encodeURIComponent(text).replaceAll(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
}

async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  return Buffer.from(await crypto.subtle.digest("SHA-256", bytes)).toString("hex");
}

async function hmac(key: Uint8Array<ArrayBuffer>, text: string): Promise<Buffer<ArrayBuffer>> {
  const imported = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return Buffer.from(await crypto.subtle.sign("HMAC", imported, Buffer.from(text)));
}
