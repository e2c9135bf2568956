import { once } from "node:events";
import { rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { CONTROL_FILE } from "./data-folder.ts";
import type { Environment } from "./environment.ts";
import { EXIT, Refusal, systemCode } from "./refusal.ts";
import { readServeSettings } from "./serve-settings.ts";

/**
 * `reload`, and the socket that it calls: a Unix socket in the data folder. A user who may write there can let `serve`
 * start another process.
 */

/** A connection requests a reload. The answer is empty, or has the reason of a failure. */
export async function takeReloads(folder: string, reload: () => Promise<void>): Promise<Disposable> {
  const path = join(folder, CONTROL_FILE);
  rmSync(path, { force: true });
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => {});
    socket.resume();
    void reload().then(
      () => socket.end(),
      (error: unknown) => socket.end(error instanceof Error ? error.message : String(error)),
    );
  });
  server.listen(path);
  await once(server, "listening");
  return {
    [Symbol.dispose]: () => {
      server.close();
      rmSync(path, { force: true });
    },
  };
}

/**
 * `reload`: lets the server that `serve` has started under the same environment start another process in its place,
 * with the installed version and the present configuration. Resolves when that process serves. Throws a Refusal if it
 * does not.
 */
export async function reload(environment: Environment): Promise<void> {
  const { stateDirectory } = readServeSettings(environment, []);
  const socket = connect({ path: join(stateDirectory, CONTROL_FILE) });
  try {
    await once(socket, "connect");
  } catch (error) {
    throw new Refusal(EXIT.failed, `Nothing serves the data folder ${stateDirectory} (${systemCode(error)}).`);
  }
  const answer = await text(socket);
  if (answer !== "") throw new Refusal(EXIT.failed, answer);
  console.log("Another process serves.");
}
