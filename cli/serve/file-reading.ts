import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { FILE_HEADER, fileOf, type LastLine } from "../../src/contract/file-reading.ts";
import { type LogFormat, ownLine } from "./log-lines.ts";
import { makeProcessFolder, type ProcessFolder } from "./process-folder.ts";
import { type ReaderProcess, startReader } from "./reader-process.ts";
import { type Bound, refusalOf, untilBound } from "./reading-bounds.ts";
import { ReadingTurns } from "./reading-turns.ts";

/**
 * Has files read by processes of their own (docs/files.md#files-that-do-harm), one file in a process at a time: code of
 * others reads them, which a hostile file can keep busy for ever, or fill with memory. Such a file fails, and nothing else
 * does. Processes start with the first file, and end when none was read for a while. All workers, and those that take
 * their place, share them.
 */

// As in `launcher-socket.ts`: without Node's `fetch`.
const { createServer } = process.getBuiltinModule("node:http");

/** Files that are read at the same time, each of another tenant. */
const READERS = 4;

/** Processes that wait for a file while files are read, and for how long after the last one. */
const SPARE = 2;
const IDLE_MS = 60_000;

/** A process with more memory than this is not used again: what it took it does not give back. Bytes. */
const GROWN = 384 * 1024 * 1024;

/** The way from a Worker's process to the processes that read files. */
export interface FileReadingSocket {
  /** The path of a Unix socket, which takes files (`src/contract/file-reading.ts`). */
  path: string;
  /** Names the folder of the bundle with which processes start from now on. */
  use(bundle: string): void;
}

export class FileReading implements FileReadingSocket, AsyncDisposable {
  readonly path: string;
  readonly #folder: ProcessFolder;
  readonly #log: { format: LogFormat; say(line: string): void };
  readonly #turns = new ReadingTurns(READERS);
  readonly #server = createServer((request, response) => {
    this.#answer(request, response).catch(() => response.destroy());
  });
  /** All processes that have started, those of them that wait for a file, and those that are starting to wait for one. */
  readonly #all = new Set<ReaderProcess>();
  #ready: ReaderProcess[] = [];
  #starting: Promise<ReaderProcess>[] = [];
  #started = 0;
  #bundle = "";
  #idle: NodeJS.Timeout | undefined;
  #isStopping = false;

  private constructor(folder: ProcessFolder, log: { format: LogFormat; say(line: string): void }) {
    this.#folder = folder;
    this.#log = log;
    this.path = join(folder.path, "files");
  }

  /** Takes files from now on. No process starts before the first one. */
  static async start(log: { format: LogFormat; say(line: string): void }): Promise<FileReading> {
    const reading = new FileReading(await makeProcessFolder(), log);
    // A file waits for its turn without a bound of its own.
    reading.#server.requestTimeout = 0;
    reading.#server.listen(reading.path);
    await once(reading.#server, "listening");
    reading.#server.unref();
    return reading;
  }

  use(bundle: string): void {
    this.#bundle = bundle;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isStopping = true;
    clearTimeout(this.#idle);
    this.#server.close();
    this.#server.closeAllConnections();
    for (const reader of this.#all) reader.kill();
    await Promise.allSettled(this.#starting);
    await Promise.allSettled([...this.#all].map(({ ended }) => ended));
    this.#folder.remove();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const left = new AbortController();
    response.on("close", () => left.abort());
    response.on("error", () => {});
    // A connection that ends while it is idle could be that of the next file.
    response.setHeader("connection", "close");
    const { [FILE_HEADER]: header } = request.headers;
    const { tenant } = fileOf(String(header));
    using _turn = await this.#turns.next(tenant);
    if (left.signal.aborted || this.#isStopping) return;
    clearTimeout(this.#idle);
    try {
      const file = { header: String(header), bytes: await buffer(request) };
      const reader = await this.#take();
      const isWhole = await this.#read(reader, file, response, left.signal);
      if (isWhole) await this.#giveBack(reader);
      else reader.kill();
    } catch (error) {
      this.#tell("error", `No process starts that reads files (${error instanceof Error ? error.message : error}).`);
      response.writeHead(503).end();
    } finally {
      clearTimeout(this.#idle);
      this.#idle = setTimeout(() => this.#endReady(), IDLE_MS).unref();
    }
  }

  /** A process for one file. If none is left then, another one starts: the next tenant should not wait for it. */
  async #take(): Promise<ReaderProcess> {
    const taken = await (this.#ready.pop() ?? this.#starting.shift() ?? this.#start());
    if (this.#ready.length + this.#starting.length === 0) this.#prepare();
    return taken;
  }

  #prepare(): void {
    const started = this.#start();
    this.#starting.push(started);
    const isUntaken = () => {
      const { length } = this.#starting;
      this.#starting = this.#starting.filter((each) => each !== started);
      return this.#starting.length < length;
    };
    started.then((reader) => isUntaken() && this.#ready.push(reader), isUntaken);
  }

  async #start(): Promise<ReaderProcess> {
    this.#started += 1;
    const reader = await startReader(this.#bundle, join(this.#folder.path, `reader-${this.#started}`), this.#log);
    this.#all.add(reader);
    const forget = () => {
      this.#all.delete(reader);
      this.#ready = this.#ready.filter((each) => each !== reader);
    };
    reader.ended.then(forget, forget);
    if (this.#isStopping) reader.kill();
    return reader;
  }

  async #giveBack(reader: ReaderProcess): Promise<void> {
    const { memory = 0 } = await reader.used();
    if (this.#ready.length >= SPARE || memory > GROWN || this.#isStopping) reader.kill();
    else this.#ready.push(reader);
  }

  #endReady(): void {
    for (const reader of this.#ready) reader.kill();
    this.#ready = [];
  }

  /** Has a process read a file. False if it is not to be used again: its file's reading did not come to an end. */
  async #read(
    reader: ReaderProcess,
    { header, bytes }: { header: string; bytes: Buffer },
    response: ServerResponse,
    left: AbortSignal,
  ): Promise<boolean> {
    const over = new AbortController();
    let passed: Bound | undefined;
    const asked = reader.ask({ [FILE_HEADER]: header });
    const bounded = untilBound(reader, over.signal).then((bound) => {
      passed = bound;
      // Its answer breaks off.
      if (bound) reader.kill();
    });
    const stop = () => asked.destroy();
    left.addEventListener("abort", stop);
    try {
      // Once its process is gone, both fail.
      asked.on("error", () => {});
      // Whole: workerd has been seen to close connections on which a short body came in two writes.
      asked.end(bytes);
      const [answer] = (await once(asked, "response")) as [IncomingMessage];
      if (answer.statusCode !== 200) throw new Error(`status ${answer.statusCode}`);
      for await (const lines of wholeLines(answer)) {
        if (!response.write(lines)) await once(response, "drain", { signal: left });
      }
      response.end();
      return true;
    } catch {
      over.abort();
      await bounded;
      if (!left.aborted) this.#fail(response, reader, passed);
      return false;
    } finally {
      over.abort();
      left.removeEventListener("abort", stop);
    }
  }

  #fail(response: ServerResponse, { pid }: ReaderProcess, bound: Bound | undefined): void {
    const line: LastLine = bound ? refusalOf(bound) : { died: true };
    response.end(`${JSON.stringify(line)}\n`);
    const why = bound ? `A file takes too much ${bound} to read, and fails` : "A process that read a file has died";
    this.#tell("warn", `${why}.`, { event: "file_reader_ended", reader: pid, reason: bound ?? "died" });
  }

  #tell(level: "warn" | "error", message: string, fields?: object): void {
    this.#log.say(ownLine(level, message, this.#log.format, fields));
  }
}

const LINE_BREAK = 0x0a;

/** The bytes of an answer up to its last line break so far: the end of an answer that breaks off is no line. */
async function* wholeLines(answer: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let begun: Buffer[] = [];
  for await (const chunk of answer) {
    const end = chunk.lastIndexOf(LINE_BREAK) + 1;
    if (end > 0) {
      yield Buffer.concat([...begun, chunk.subarray(0, end)]);
      begun = [];
    }
    begun.push(chunk.subarray(end));
  }
}
