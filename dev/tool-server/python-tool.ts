import { z } from "zod";
import { Interpreter, type Python } from "./interpreter.ts";
import { describeEnding } from "./limited-process.ts";
import type { ProgramHost } from "./program-host.ts";
import { changedFiles, namedFile, SessionFiles, wantedPiece, writtenPiece } from "./session-files.ts";
import { SessionPool } from "./session-pool.ts";
import type { ToolEndpoint, ToolResult } from "./tool-endpoint.ts";
import { ToolError } from "./tool-error.ts";

/** gpt-oss's own description, which the model was trained with. */
const NO_OUTPUT = "[WARN] No output available. Use print() to output anything to stdout to receive the output";

const DESCRIPTION = `Executes Python code and returns what it prints, and the value of a last expression. Variables, imports and files are kept \
between calls. There is no display and no input.`;

/**
 * The tool `python`: a notebook per session. If none is installed, `python` is null, and every call returns an error.
 */
export function createPythonTool(host: ProgramHost, python: Python | null): ToolEndpoint {
  const sessions = new SessionPool((named) => new PythonSession(host, python, named?.memoryMb), host.settings);
  return {
    name: "python",
    sessions,
    register(server, answer) {
      server.registerTool(
        "python",
        { description: DESCRIPTION, inputSchema: z.object({ code: z.string().describe("The code to execute") }) },
        ({ code }, context) =>
          answer(context, (signal, session) => sessions.run(session, (state) => state.run(code, signal))),
      );
      server.registerTool(
        "write_file",
        { description: "Writes a file to the session's directory, or a piece to its end.", inputSchema: writtenPiece },
        (piece, context) =>
          answer(context, (_signal, session) => sessions.run(session, ({ files }) => files.write(piece))),
      );
      server.registerTool(
        "read_file",
        { description: "Reads a piece of a file of the session's directory.", inputSchema: wantedPiece },
        (piece, context) =>
          answer(context, (_signal, session) => sessions.run(session, ({ files }) => files.read(piece))),
      );
      server.registerTool(
        "delete_file",
        { description: "Removes a file of the session's directory.", inputSchema: namedFile },
        (file, context) =>
          answer(context, (_signal, session) => sessions.run(session, ({ files }) => files.delete(file))),
      );
    },
  };
}

class PythonSession {
  readonly #host: ProgramHost;
  readonly #python: Python | null;
  readonly #memoryMb: number | undefined;
  readonly #directory: string;
  readonly files: SessionFiles;
  #interpreter: Interpreter | null = null;

  constructor(host: ProgramHost, python: Python | null, memoryMb: number | undefined) {
    this.#host = host;
    this.#memoryMb = memoryMb;
    this.#python = python;
    this.#directory = host.createDirectory();
    this.files = new SessionFiles(this.#directory, host.settings.maxFileMb * 1024 * 1024, host.sandbox !== undefined);
  }

  async run(code: string, signal: AbortSignal): Promise<ToolResult> {
    signal.throwIfAborted();
    const note = await this.#noteOnEnded();
    this.#interpreter ??= this.#start();
    const before = await this.files.list();
    const { output: printed, ending } = await this.#interpreter.run(this.files.withOwnPath(code), signal);
    const output = this.files.withShownPath(printed);
    const structured = { files: changedFiles(before, await this.files.list()) };
    if (ending === null) return { text: note + (output || NO_OUTPUT), failed: false, structured };
    this.#interpreter = null;
    const why = `[ERROR] The interpreter ${describeEnding(ending, this.#host.settings)}. \
Its variables are lost, files are kept: the next call starts a new one.`;
    return { text: note + (output ? `${output.trimEnd()}\n${why}` : why), failed: true, structured };
  }

  async end(): Promise<void> {
    await this.#interpreter?.stop("was ended with its session");
    await this.#host.removeDirectory(this.#directory);
  }

  #start(): Interpreter {
    if (this.#python === null) {
      throw new ToolError(`Python is not installed on the tool server (there is no ${this.#host.settings.python}).`);
    }
    return new Interpreter(this.#python.path, this.#directory, this.#host, this.#memoryMb);
  }

  /** The note that the interpreter has ended between calls, by a thread or a process that was left running. */
  async #noteOnEnded(): Promise<string> {
    if (this.#interpreter === null || this.#interpreter.running) return "";
    const ending = await this.#interpreter.ended;
    this.#interpreter = null;
    return `[WARN] The interpreter ${describeEnding(ending, this.#host.settings)} after the last call. Its variables are lost.\n`;
  }
}
