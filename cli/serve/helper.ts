import type { SendHandle } from "node:child_process";
import { once } from "node:events";
import { flushCompileCache } from "node:module";
import { type AddressInfo, createServer, type Server } from "node:net";
import { inspect } from "node:util";
import { readChangedFile, readConfiguration } from "../configuration/configuration.ts";
import { modelServerLines } from "../configuration/model-servers.ts";
import { type Answer, type Answers, HELPER_VERSION, type ListenAddress, type Question } from "./helper-questions.ts";
import { Refusal, systemCode } from "./refusal.ts";

/** The helper process of `serve` (`helper-process.ts`). It ends with the program that has started it. */

const ANSWERS = { readConfiguration, readChangedFile, modelServerLines };

process.on("message", async ({ id, version, name, given }: Question) => {
  if (version !== HELPER_VERSION) {
    process.send?.({ id, fault: "The installed version cannot follow this one without a restart." } satisfies Answer & {
      id: number;
    });
  } else if (name === "listen") {
    await sendSocket(id, ...(given as Parameters<Answers["listen"]>));
  } else {
    process.send?.({ id, ...(await answerTo(name, given)) });
    // It is killed, and Node itself writes what it has compiled only at an orderly end.
    flushCompileCache();
  }
});
process.on("disconnect", () => process.exit());

async function answerTo(name: keyof typeof ANSWERS, given: readonly unknown[]): Promise<Answer> {
  try {
    return { value: await (ANSWERS[name] as (...given: readonly unknown[]) => unknown)(...given) };
  } catch (error) {
    return error instanceof Refusal
      ? { refusal: { exitCode: error.exitCode, lines: error.lines } }
      : { fault: error instanceof Error ? (error.stack ?? error.message) : inspect(error) };
  }
}

/**
 * Listens, and sends the socket. From the beginning of listening to the end of this nothing gives way to the event loop, where Node
 * would accept connections.
 */
async function sendSocket(id: number, { host, port, isShared }: ListenAddress): Promise<void> {
  const server = createServer();
  try {
    server.listen({ host, port, exclusive: true, backlog: 4096, reusePort: isShared });
    await once(server, "listening");
    const { port: taken } = server.address() as AddressInfo;
    // The bare socket: on a `Server` the receiver would accept connections.
    const { _handle: socket } = server as Server & { _handle?: SendHandle };
    process.send?.({ id, value: { port: taken } }, socket);
    server.close();
  } catch (error) {
    process.send?.({ id, value: { code: systemCode(error) } });
  }
}
