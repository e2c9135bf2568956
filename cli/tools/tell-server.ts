import { once } from "node:events";
import { connect } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import type { Environment } from "../configuration/environment.ts";
import { readServeSettings } from "../configuration/serve-settings.ts";
import type { Command } from "../reload/control-socket.ts";
import { CONTROL_FILE } from "../serve/data-folder.ts";
import { EXIT, Refusal, systemCode } from "../serve/refusal.ts";

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
