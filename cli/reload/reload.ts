import { once } from "node:events";
import { rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import type { Environment } from "../configuration/environment.ts";
import { readServeSettings } from "../configuration/serve-settings.ts";
import { CONTROL_FILE } from "../serve/data-folder.ts";
import { EXIT, Refusal, systemCode } from "../serve/refusal.ts";

/**
 * The commands to a server that serves, and the socket that takes them: a Unix socket in the data folder. A user who may
 * write there can let `serve` start another process.
 */

/** Another process takes the place of the serving one; with `quarantine` without the objects that the log calls damaged. */
const COMMANDS = ["reload", "quarantine"] as const;
export type Command = (typeof COMMANDS)[number];

/** A connection sends a command. The answer is empty, or has the reason of a failure. */
export async function takeCommands(folder: string, run: (command: Command) => Promise<void>): Promise<Disposable> {
  const path = join(folder, CONTROL_FILE);
  rmSync(path, { force: true });
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => {});
    const work = async () => {
      const said = await text(socket);
      const command = COMMANDS.find((each) => each === said);
      if (!command) throw new Error("This server does not know the command.");
      await run(command);
    };
    void work().then(
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
 * Sends a command to the server that `serve` has started under the same environment: it starts another process in its
 * place, with the installed version and the present configuration. Resolves when that process serves. Throws a Refusal
 * if it does not.
 */
export async function tellServer(environment: Environment, command: Command): Promise<void> {
  const { stateDirectory } = readServeSettings(environment, []);
  const socket = connect({ path: join(stateDirectory, CONTROL_FILE) });
  try {
    await once(socket, "connect");
  } catch (error) {
    throw new Refusal(EXIT.failed, `Nothing serves the data folder ${stateDirectory} (${systemCode(error)}).`);
  }
  socket.end(command);
  const answer = await text(socket);
  if (answer !== "") throw new Refusal(EXIT.failed, answer);
  console.log("Another process serves.");
}
