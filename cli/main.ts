#!/usr/bin/env node
import { parseArgs } from "node:util";
import { createKey } from "./create-key.ts";
import { health } from "./health.ts";
import { version, workerdVersion } from "./installation.ts";
import { ownLine } from "./log-lines.ts";
import { EXIT, Refusal } from "./refusal.ts";
import { serve } from "./serve.ts";
import { logFormat } from "./serve-settings.ts";

/** `responses-edge COMMAND`: the program that is installed. */

const HELP = `responses-edge ${version}: the OpenAI Responses API in front of your own vLLM.

Usage: responses-edge [COMMAND]

  serve                 Serves, under the configuration of the environment. The default.
  create-key TENANT     Makes an API key for a tenant; with --admin NAME a root key.
  health                Asks the server of this environment whether it is healthy: exit code 0 or 1.

  --help, --version

The least that serve wants:

  VLLM_BASE_URL=http://gpu:8000/v1  API_KEYS=TENANT:SHA256  responses-edge serve
`;

interface Command {
  /** How many arguments it takes. */
  arguments: number;
  run(given: readonly string[], isAdmin: boolean): void | Promise<void>;
}

const COMMANDS: Readonly<Record<string, Command>> = {
  serve: { arguments: 0, run: () => serve(process.env) },
  health: { arguments: 0, run: () => health(process.env) },
  "create-key": { arguments: 1, run: ([name = ""], isAdmin) => createKey({ name, isAdmin }) },
};

try {
  await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof Refusal)) throw error;
  console.error(ownLine("error", error.message, logFormat(process.env)));
  process.exitCode = error.exitCode;
}

async function main(args: readonly string[]): Promise<void> {
  const { values, positionals } = parse(args);
  if (values.help) return console.log(HELP);
  if (values.version) return console.log(`responses-edge ${version} (workerd ${workerdVersion})`);
  const [name = "serve", ...given] = positionals;
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (!command || given.length > command.arguments || (values.admin && name !== "create-key")) throw usage();
  await command.run(given, values.admin ?? false);
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        help: { type: "boolean", short: "h" },
        version: { type: "boolean", short: "v" },
        admin: { type: "boolean" },
      },
    });
  } catch {
    throw usage();
  }
}

function usage(): Refusal {
  return new Refusal(EXIT.usage, "There is no such command. `responses-edge --help` has them all.");
}
