import { execFile, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { Agent, createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { freePort, untilReady } from "../workerd/tools.ts";

/** A bucket of this machine: versitygw over a folder. It writes under conditions (`If-Match`, `If-None-Match`) as S3 does. */

const MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";
const cache = fileURLToPath(new URL("../../node_modules/.cache/versitygw/", import.meta.url));

/** The reason why no S3 server is available; undefined if one is. `VERSITYGW` names an existing binary. */
export function whyNoBucket(): string | undefined {
  if (process.env.VERSITYGW) return undefined;
  const { status } = spawnSync("go", ["version"]);
  return status === 0 ? undefined : "there is no Go to build an S3 server with; VERSITYGW may name a binary";
}

async function builtServer(): Promise<string> {
  if (process.env.VERSITYGW) return process.env.VERSITYGW;
  const binary = join(cache, "versitygw");
  if (!existsSync(binary)) {
    mkdirSync(cache, { recursive: true });
    await promisify(execFile)("go", ["install", MODULE], { env: { ...process.env, GOBIN: cache } });
  }
  return binary;
}

export interface Bucket {
  /** The variables of an instance that reaches the bucket on this way. */
  variables(way: Way): Record<string, string>;
  /** Makes a new way to the bucket. */
  way(): Promise<Way>;
  close(): void;
}

/** A way to the bucket that can be blocked: for one instance, or in the moment of one write. */
export interface Way {
  endpoint: string;
  /** Holds matching requests back from now on, until `open()`. */
  block(matches: (method: string, path: string) => boolean): void;
  /** The number of requests that are held back. */
  held(): number;
  /** Lets all requests through. */
  open(): void;
}

export async function startBucket(): Promise<Bucket> {
  const directory = mkdtempSync(join(tmpdir(), "responses-edge-bucket-"));
  mkdirSync(join(directory, "responses"));
  const port = await freePort();
  const healthPath = "/health";
  const options = ["--port", `127.0.0.1:${port}`, "--access", "test", "--secret", "secret", "--health", healthPath];
  const args = [...options, "--keep-alive", "--quiet", "posix", directory];
  const child = spawn(await builtServer(), args, { stdio: "ignore" });
  await untilReady(child, `http://127.0.0.1:${port}${healthPath}`);
  const ways: { close(): void }[] = [];
  return {
    variables: ({ endpoint }) => ({
      CLUSTER_BUCKET: "s3://responses/edge",
      AWS_ENDPOINT_URL: endpoint,
      AWS_REGION: "us-east-1",
      AWS_ACCESS_KEY_ID: "test",
      AWS_SECRET_ACCESS_KEY: "secret",
    }),
    async way() {
      const way = await startWay(port);
      ways.push(way);
      return way;
    },
    close() {
      for (const way of ways) way.close();
      child.kill("SIGKILL");
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

async function startWay(target: number): Promise<Way & { close(): void }> {
  const agent = new Agent({ keepAlive: true });
  let isBlocked: (method: string, path: string) => boolean = () => false;
  let held: (() => void)[] = [];
  const pass = (request: IncomingMessage, response: ServerResponse) => {
    const { method, url: path, headers } = request;
    const onward = httpRequest({ host: "127.0.0.1", port: target, method, path, headers, agent }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    onward.on("error", () => response.destroy());
    request.pipe(onward);
  };
  const server = createServer((request, response) => {
    if (isBlocked(request.method ?? "", request.url ?? "")) held.push(() => pass(request, response));
    else pass(request, response);
  });
  const port = await freePort();
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  return {
    endpoint: `http://127.0.0.1:${port}`,
    block(matches) {
      isBlocked = matches;
    },
    held: () => held.length,
    open() {
      isBlocked = () => false;
      const waiting = held;
      held = [];
      for (const go of waiting) go();
    },
    close() {
      server.close();
      server.closeAllConnections();
      agent.destroy();
    },
  };
}
