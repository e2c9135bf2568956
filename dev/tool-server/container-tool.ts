import { realpath } from "node:fs/promises";
import { isAbsolute, relative, resolve } from "node:path";
import { z } from "zod";
import { callLimits } from "./call-limits.ts";
import { CapturedOutput } from "./captured-output.ts";
import { describeEnding } from "./limited-process.ts";
import type { ProgramHost } from "./program-host.ts";
import { SessionPool } from "./session-pool.ts";
import type { ToolEndpoint, ToolResult } from "./tool-endpoint.ts";
import { ToolError } from "./tool-error.ts";

const DESCRIPTION = `Executes a command and returns what it prints, stdout and stderr, and its exit code. Files are kept between calls; \
processes end with the command. There is no shell unless the command is one: ["bash", "-lc", "ls | wc -l"].`;

/** A number from here on means milliseconds: models use both units, and no command may run for so many seconds. */
const FIRST_MILLISECONDS = 1000;

const commandSchema = z.object({
  cmd: z.array(z.string()).min(1).describe("The program and its arguments"),
  workdir: z.string().nullish().describe("A directory below the session's own, which is the default"),
  env: z.record(z.string(), z.string()).nullish().describe("Variables to add to the environment"),
  session_name: z.string().nullish().describe("Has no effect"),
  timeout: z.number().positive().nullish().describe("In seconds; from 1000 on, in milliseconds"),
  user: z.string().nullish().describe("Has no effect"),
});

type Command = z.output<typeof commandSchema>;

/** The tool `exec`: commands in a directory per session. */
export function createContainerTool(host: ProgramHost): ToolEndpoint {
  const sessions = new SessionPool(() => new ContainerSession(host), host.settings);
  return {
    name: "container",
    sessions,
    register(server, answer) {
      server.registerTool("exec", { description: DESCRIPTION, inputSchema: commandSchema }, (command, context) =>
        answer(context, (signal, session) => sessions.run(session, (state) => state.run(command, signal))),
      );
    },
  };
}

class ContainerSession {
  readonly #host: ProgramHost;
  readonly #directory: string;
  readonly #ended = new AbortController();
  #running: Promise<unknown> | null = null;

  constructor(host: ProgramHost) {
    this.#host = host;
    this.#directory = host.createDirectory();
  }

  async run(command: Command, signal: AbortSignal): Promise<ToolResult> {
    signal.throwIfAborted();
    const { settings } = this.#host;
    const captured = new CapturedOutput(settings.maxOutputBytes);
    const process = this.#host.start(checkedArguments(command.cmd), {
      base: this.#directory,
      directory: await this.#workdir(command.workdir ?? "."),
      environment: checkedEnvironment(command.env ?? {}),
      onOutput: (chunk) => captured.add(chunk),
    });
    const release = callLimits(
      process,
      timeoutOf(command, settings.timeoutMs),
      AbortSignal.any([signal, this.#ended.signal]),
    );
    this.#running = process.ended;
    const ending = await process.ended;
    release();
    const output = captured.text();
    const result =
      ending.kind === "exited"
        ? `[exit code ${ending.code}]`
        : `[ERROR] The command ${describeEnding(ending, settings)}.`;
    const lines = [...noteOn(command), ...(output ? [output.trimEnd()] : []), result];
    return { text: lines.join("\n"), failed: ending.kind !== "exited" };
  }

  async end(): Promise<void> {
    this.#ended.abort();
    await this.#running;
    await this.#host.removeDirectory(this.#directory);
  }

  async #workdir(path: string): Promise<string> {
    const base = await realpath(this.#directory);
    const directory = await realpath(resolve(base, path)).catch(() => null);
    if (directory === null) throw new ToolError(`The workdir ${path} does not exist.`);
    const below = relative(base, directory);
    if (below === ".." || below.startsWith("../") || isAbsolute(below)) {
      throw new ToolError(
        `The workdir ${path} is outside of the session's directory. Leave it out, or give a relative path.`,
      );
    }
    return directory;
  }
}

function checkedArguments(command: string[]): string[] {
  if (command.some((argument) => argument.includes("\0"))) throw new ToolError("An argument contains a NUL character.");
  return command;
}

function checkedEnvironment(environment: Record<string, string>): Record<string, string> {
  for (const [name, value] of Object.entries(environment)) {
    if (!name || /[=\0]/.test(name) || value.includes("\0")) {
      throw new ToolError(`The variable ${JSON.stringify(name)} is not possible in an environment.`);
    }
  }
  return environment;
}

function timeoutOf({ timeout }: Command, longest: number): number {
  if (!timeout) return longest;
  return Math.min(timeout < FIRST_MILLISECONDS ? timeout * 1000 : timeout, longest);
}

function noteOn(command: Command): string[] {
  const ignored = (["user", "session_name"] as const).filter((name) => command[name]);
  return ignored.map((name) => `[WARN] ${name} has no effect here.`);
}
