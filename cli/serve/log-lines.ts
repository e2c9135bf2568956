import type { Readable } from "node:stream";
import { logLine, oneLine } from "@responses-edge/bounded-io/json-text";

/**
 * The log lines of workerd (`structuredLogging`) and of the Worker in it, for people or for machines, without stacks of
 * code. workerd prints stacks also for faults of others, such as an unknown host name.
 */

/** `text` for people; `json` for machines: an object on each line. */
export type LogFormat = "text" | "json";

/** The format of the log, also for an environment with errors. A terminal is for people, a pipe for machines. */
export function logFormat({ LOG_FORMAT: format }: Readonly<Record<string, string | undefined>>): LogFormat {
  return format === "json" || format === "text" ? format : process.stdout.isTTY ? "text" : "json";
}

type Level = "info" | "warn" | "error";

/** A line of workerd. `source` is present if workerd itself writes it. */
interface WorkerdLine {
  level: string;
  message: string;
  source?: string;
}

/** Forwards every line of an output; resolves at its end. */
export async function followLines(output: Readable, format: LogFormat, say: (line: string) => void): Promise<void> {
  for await (const line of linesOf(output)) {
    const shown = shownLine(line, format);
    if (shown !== undefined) say(shown);
  }
}

/** Lines that LF ends, as workerd writes them. (Node's `readline` also ends them at U+2028, U+2029 and CR.) */
async function* linesOf(output: Readable): AsyncGenerator<string> {
  let pieces: string[] = [];
  for await (const piece of output.setEncoding("utf8") as AsyncIterable<string>) {
    const [first = "", ...others] = piece.split("\n");
    pieces.push(first);
    for (const other of others) {
      yield pieces.join("").replace(/\r$/, "");
      pieces = [other];
    }
  }
  const last = pieces.join("");
  if (last !== "") yield last;
}

/**
 * workerd logs at each start that it compiles its own scripts again, because its cache of them has no flags of V8
 * (`V8_FLAGS`).
 */
const FLAGS_NOTE = "bootstrap compile cache failed its compatibility check";

/**
 * workerd logs this about an alarm that it got twice: from the process before it, and from the object
 * (`src/store/objects/owned-object.ts`).
 */
const ALARM_NOTE = "NOSENTRY SQLite alarm";

/** workerd logs this for each reader of a run whose stream ends because the process does (`SseStream.abandon`). */
const READER_NOTE = "Error: The stream was given up.";

/** workerd logs this for each WebSocket that is cut because its client does not close it (`src/socket/upgrade.ts`). */
const SOCKET_NOTE = "Error: The client did not close its WebSocket.";

/** workerd logs this for work of an object that a hand-over cuts off (`src/store/objects/owned-object.ts`). */
const HAND_OVER_NOTE = "Error: The object was handed over.";

const HIDDEN = [FLAGS_NOTE, ALARM_NOTE, READER_NOTE, SOCKET_NOTE, HAND_OVER_NOTE];

/** The printed form of a line; undefined for a hidden one. */
export function shownLine(line: string, format: LogFormat): string | undefined {
  const said = parse(line);
  if (!said) {
    // Unstructured lines: workerd's last ones, and those before it has read its configuration.
    if (line.startsWith("stack: ") || line === "") return undefined;
    return ownLine("error", plainly(line), format);
  }
  // The Worker's own lines are JSON already (docs/telemetry.md).
  if (said.source === undefined && said.message.startsWith("{")) return oneLine(said.message);
  if (HIDDEN.some((note) => said.message.includes(note))) return undefined;
  return ownLine(levelOf(said.level), plainly(said.message), format);
}

/** A line of this program itself. */
export function ownLine(level: Level, message: string, format: LogFormat, fields: object = {}): string {
  if (format === "text") return message;
  return logLine({ time: new Date().toISOString(), level, message, ...fields });
}

/** A message without its position in workerd's code, and without stacks. */
function plainly(message: string): string {
  const [first = ""] = message.split(/\nstack: |\n\s+at /);
  const where =
    /^(?:\S+\.c\+\+:\d+: \w+: )?(?:Uncaught exception: )?(?:e = )?(?:\S+:\d+: (?:failed: )?)?(?:remote\.)?(?:jsg\.)?/;
  return `workerd: ${oneLine(first.replace(where, ""))}`;
}

function levelOf(level: string): Level {
  return level === "error" || level === "warn" ? level : "info";
}

function parse(line: string): WorkerdLine | undefined {
  if (!line.startsWith("{")) return undefined;
  try {
    const { level, message, source } = JSON.parse(line) as Partial<WorkerdLine>;
    return typeof level === "string" && typeof message === "string" ? { level, message, source } : undefined;
  } catch {
    return undefined;
  }
}
