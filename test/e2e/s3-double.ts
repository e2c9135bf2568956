import { createHash, createHmac } from "node:crypto";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";

/** A server with the part of S3's API that is used here. It checks each signature with Node's own crypto. */
export interface S3Double {
  url: string;
  /** Its objects, by `bucket/name`. */
  objects: Map<string, Buffer>;
  /** All requests with this method are a 500. */
  broken: { method: string | undefined };
  close(): Promise<void>;
}

export const ACCESS = { id: "AKIDTEST", secret: "a+secret/key=of=tests", region: "eu-test-1" };

export async function startS3(): Promise<S3Double> {
  const objects = new Map<string, Buffer>();
  const broken: S3Double["broken"] = { method: undefined };
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks);
    const answer = (status: number, text: string | Buffer = "") => response.writeHead(status).end(text);
    if (!isSigned(request, body)) return answer(403, "<Error><Code>SignatureDoesNotMatch</Code></Error>");
    if (broken.method === request.method) return answer(500, "<Error><Code>InternalError</Code></Error>");
    const url = new URL(request.url ?? "", "http://s3");
    const [, bucket = "", ...rest] = url.pathname.split("/").map(decodeURIComponent);
    const name = `${bucket}/${rest.join("/")}`;
    if (url.searchParams.get("list-type") === "2") {
      const [prefix, after] = [url.searchParams.get("prefix"), url.searchParams.get("start-after") ?? ""];
      const names = [...objects.keys()].map((each) => each.slice(bucket.length + 1)).sort();
      const found = names.filter((each) => each.startsWith(prefix ?? "") && each > after).slice(0, 1_000);
      return answer(200, `<ListBucketResult>${found.map((key) => `<Contents><Key>${key}</Key></Contents>`).join("")}`);
    }
    if (request.method === "GET") {
      const found = objects.get(name);
      return found ? answer(200, found) : answer(404, "<Error><Code>NoSuchKey</Code></Error>");
    }
    if (request.method === "PUT") objects.set(name, body);
    else objects.delete(name);
    return answer(200);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    objects,
    broken,
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

const sha256 = (bytes: string | Buffer) => createHash("sha256").update(bytes).digest("hex");
const hmac = (key: string | Buffer, text: string) => createHmac("sha256", key).update(text).digest();

/** Tells whether the request is signed with the key, and its body is the signed one. */
function isSigned({ method, url = "", headers }: IncomingMessage, body: Buffer): boolean {
  const form =
    /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/s3\/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)$/;
  const [, id, day = "", region = "", names = "", signature] = form.exec(headers.authorization ?? "") ?? [];
  const time = String(headers["x-amz-date"]);
  if (id !== ACCESS.id || region !== ACCESS.region || !time.startsWith(day)) return false;
  if (headers["x-amz-content-sha256"] !== sha256(body) || !names.split(";").includes("host")) return false;
  const [path = "", query = ""] = url.split("?");
  const lines = names.split(";").map((name) => `${name}:${String(headers[name]).trim()}\n`);
  const sorted = query.split("&").filter(Boolean).sort().join("&");
  const canonical = `${method}\n${path}\n${sorted}\n${lines.join("")}\n${names}\n${sha256(body)}`;
  const scope = `${day}/${region}/s3/aws4_request`;
  const key = ["s3", "aws4_request"].reduce(hmac, hmac(hmac(`AWS4${ACCESS.secret}`, day), region));
  return hmac(key, `AWS4-HMAC-SHA256\n${time}\n${scope}\n${sha256(canonical)}`).toString("hex") === signature;
}
