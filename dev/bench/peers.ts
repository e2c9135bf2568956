import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { z } from "zod";
import { freePort, untilReady } from "../../test/workerd/tools.ts";
import { post } from "./load.ts";
import { GATEWAY_CORE, start, stopTree } from "./processes.ts";
import { ASKED, HELLO, RESPONSES_DELTA, type TargetKind } from "./targets.ts";

/**
 * Other gateways that answer `POST /v1/responses`. A file lists them (`peers.example.json`): the command that starts
 * each, the path that answers when it is ready, and its form of a request. In all texts `{port}` is the peer's port,
 * `{spare}` another free port, `{upstream}` the model server's origin, and `{directory}` a folder that is removed at
 * the end. A program whose name contains a slash is resolved from the file's own folder.
 */

const scratch = mkdtempSync(join(tmpdir(), "responses-edge-peers-"));
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));

const peer = z.strictObject({
  /** The column's head. */
  name: z.string(),
  /** The program that listens, and its arguments. The CPU of this process is measured. */
  command: z.array(z.string()).min(1),
  environment: z.record(z.string(), z.string()).default({}),
  /** Files that are written into `{directory}` before the start, by name. */
  files: z.record(z.string(), z.string()).default({}),
  /** A path that answers 200 when the peer is ready. */
  ready: z.string(),
  path: z.string().default("/v1/responses"),
  headers: z.record(z.string(), z.string()).default({}),
  /**
   * Sent instead of the model's name. In it `{model}` is that name; without that, the name is in `instructions`
   * (upstream.ts), for a peer that knows only one model.
   */
  model: z.string().optional(),
  /** Fields of the request beside `model`, `stream` and `input`. */
  body: z.record(z.string(), z.unknown()).default({}),
  /** A text that each delta of the stream contains once. */
  delta: z.string().default(RESPONSES_DELTA),
});
type Peer = z.output<typeof peer>;

export function readPeers(file: string): TargetKind[] {
  return z
    .array(peer)
    .parse(JSON.parse(readFileSync(file, "utf8")))
    .map((each) => toTarget(each, dirname(resolve(file))));
}

function toTarget({ name, path, model, body, delta, ...rest }: Peer, folder: string): TargetKind {
  // The headers are set before the peer starts, because they may name the model server.
  let headers: Record<string, string> = {};
  return {
    name,
    isPeer: true,
    request: ({ model: asked, stream, history, previous }) => {
      const named = model?.includes("{model}") === false ? { instructions: `${ASKED}${asked};` } : {};
      const input = history ?? HELLO;
      const name = model?.replace("{model}", asked) ?? asked;
      return post(
        path,
        { ...named, model: name, stream, input, previous_response_id: previous, ...body },
        delta,
        headers,
      );
    },
    async start(upstream, directory = mkdtempSync(join(scratch, "peer-"))) {
      const port = await freePort();
      const places: Record<string, string> = {
        port: `${port}`,
        spare: `${await freePort()}`,
        upstream: `http://127.0.0.1:${upstream.port}`,
        directory,
      };
      const fill = (text: string) =>
        text.replace(/\{(port|spare|upstream|directory)\}/g, (_, place) => places[place] ?? "");
      const filled = (texts: Record<string, string>) =>
        Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, fill(text)]));
      for (const [file, text] of Object.entries(rest.files)) writeFileSync(join(directory, file), fill(text));
      headers = filled(rest.headers);
      const [program = "", ...args] = rest.command.map(fill);
      const child = start(program.includes("/") ? resolve(folder, program) : program, args, GATEWAY_CORE, {
        cwd: folder,
        env: { ...process.env, ...filled(rest.environment) },
        stdio: ["ignore", "ignore", "ignore"],
      });
      await untilReady(child, `http://127.0.0.1:${port}${rest.ready}`).catch((cause: Error) => {
        throw new Error(`${name} does not start: ${cause.message}`);
      });
      return { port, pid: child.pid ?? 0, state: directory, stop: () => stopTree(child) };
    },
  };
}
