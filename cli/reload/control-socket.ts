import { once } from "node:events";
import { rmSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { CONTROL_FILE } from "../serve/data-folder.ts";

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
