import type { Readable } from "node:stream";
import { logLine, oneLine } from "@responses-edge/json-text";

/**
 * The log lines of workerd (`structuredLogging`) and of the Worker in it, for people or for machines, without stacks of code. workerd
 * prints one for what is no fault of its own, such as a host name that nobody knows.
 */

/** `text` for people; `json` for machines: an object on each line. */
export type LogFormat = "text" | "json";

type Level = "info" | "warn" | "error";

/** A line as workerd writes it. `source` is there where it is workerd itself that speaks. */
interface WorkerdLine {
  level: string;
  message: string;
  source?: string;
}

/** Hands on every line of an output; resolves at its end. */
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

/** workerd says at each start that it compiles its own scripts anew, because its cache of them knows no flags of V8 (`V8_FLAGS`). */
const FLAGS_NOTE = "bootstrap compile cache failed its compatibility check";

/** workerd says so of an alarm whose time it heard of twice: of the process before it, and of the object (`src/store/hand-over.ts`). */
const ALARM_NOTE = "NOSENTRY SQLite alarm";

/** A line as it is to be shown; undefined for what is not. */
export function shownLine(line: string, format: LogFormat): string | undefined {
  const said = parse(line);
  if (!said) {
    // Not structured: workerd's last words, and those before it has read its configuration.
    if (line.startsWith("stack: ") || line === "") return undefined;
    return ownLine("error", plainly(line), format);
  }
  // The Worker's own lines are JSON already (docs/telemetry.md).
  if (said.source === undefined && said.message.startsWith("{")) return oneLine(said.message);
  if (said.message.includes(FLAGS_NOTE) || said.message.startsWith(ALARM_NOTE)) return undefined;
  return ownLine(levelOf(said.level), plainly(said.message), format);
}

/** A line of this program's own. */
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
