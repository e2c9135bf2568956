/**
 * `npx node scripts/record-kill.ts`: kills the gateway with `kill -9` in the middle of a streamed answer, starts it
 * again, resumes after the last event, and writes docs/images/kill.svg, a terminal that replays this. Throws, and
 * writes nothing, if a token was lost or repeated.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bundleInto } from "../cli/serve/bundle.ts";
import { root } from "../cli/serve/installation.ts";
import { serveSimulator } from "../dev/simulator/serve.ts";

const PORT = 8799;
const URL = `http://127.0.0.1:${PORT}/v1/responses`;
/** 12 tokens a second, a pace at which people can read along. */
const MODEL = "simulator?tps=12";
const INPUT =
  "every event is written down before you see it, so a gateway that dies forgets nothing, and the next one goes on with the very next token.";
/** The process is killed after this number of tokens has arrived. */
const KILLED_AFTER = 14;

/** Characters of a line. */
const COLUMNS = 92;
const LINE_HEIGHT = 22;
const CHARACTER_WIDTH = 8.4;
const MARGIN = 20;
const TITLE_BAR = 34;

/** A piece of text on the terminal, `at` milliseconds after the first command. */
interface Piece {
  at: number;
  text: string;
  style: "command" | "before" | "after" | "note";
}

interface StreamEvent {
  type: string;
  sequence_number: number;
  delta?: string;
  response?: { id: string };
}

const directory = mkdtempSync(join(tmpdir(), "record-kill-"));
const simulator = await serveSimulator();
try {
  const bundle = join(directory, "worker");
  bundleInto(bundle);
  const pieces = await record(bundle);
  writeFileSync(join(root, "docs/images/kill.svg"), svgOf(pieces));
} finally {
  await simulator.close();
  rmSync(directory, { recursive: true, force: true });
}

async function record(bundle: string): Promise<Piece[]> {
  let gateway = await startGateway(bundle);
  const begin = performance.now();
  const pieces: Piece[] = [];
  const show = (style: Piece["style"], text: string, at = performance.now()) =>
    pieces.push({ at: at - begin, text, style });

  show("command", `$ curl -N $URL/v1/responses --json '{"background":true, "stream":true, "input":"…"}'\n`);
  const events: StreamEvent[] = [];
  const tokens = () => events.filter(({ delta }) => delta !== undefined).length;
  const processes = processesOf(gateway);
  const created = await post({ model: MODEL, input: INPUT, background: true, stream: true });
  try {
    for await (const event of eventsIn(created)) {
      events.push(event);
      if (event.delta) show("before", event.delta);
      if (tokens() === KILLED_AFTER) for (const pid of processes) process.kill(pid, "SIGKILL");
    }
  } catch {
    // The connection broke: the process is dead.
  }
  show("command", `\n${`$ kill -9 ${processes.join(" ")}`.padEnd(34)}# the gateway, in mid-answer\n`);
  const lost = performance.now();
  gateway = await startGateway(bundle);
  const seconds = ((performance.now() - lost) / 1000).toFixed(1);
  show("command", `${"$ npm run serve".padEnd(34)}# the same data folder, ${seconds} s later\n`);

  const id = events[0]?.response?.id ?? "";
  const last = events.at(-1)?.sequence_number ?? 0;
  const before = tokens();
  show("command", `$ curl -N "$URL/v1/responses/${id.slice(0, 9)}…?stream=true&starting_after=${last}"\n`);
  for await (const event of eventsIn(await fetch(`${URL}/${id}?stream=true&starting_after=${last}`))) {
    events.push(event);
    if (event.delta) show("after", event.delta);
  }
  const end = performance.now();
  const text = events.map(({ delta = "" }) => delta).join("");
  const uninterrupted = (await (await post({ model: MODEL, input: INPUT })).json()) as { output: unknown };
  if (!JSON.stringify(uninterrupted.output).includes(JSON.stringify(text)))
    throw new Error(`Lost or repeated: ${text}`);
  if (events.some((event, index) => event.sequence_number !== index)) throw new Error("The events have a gap.");
  show(
    "note",
    `\n\n✔ ${before} tokens before, ${tokens() - before} after: none lost, none repeated. Events 0 to ${events.length - 1}, without a gap.`,
    end,
  );
  gateway.kill();
  await once(gateway, "exit");
  return pieces;
}

function post(body: object): Promise<Response> {
  return fetch(URL, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

/** Starts `serve` on the recording's data folder. Resolves when it is healthy. */
async function startGateway(bundle: string): Promise<ChildProcess> {
  const child = spawn(process.execPath, [join(root, "cli/main.ts"), "serve"], {
    stdio: ["ignore", "ignore", "inherit"],
    env: {
      ...process.env,
      VLLM_BASE_URL: `${simulator.url}/v1`,
      ALLOW_ANONYMOUS: "true",
      PORT: String(PORT),
      STATE_DIRECTORY: join(directory, "data"),
      RESPONSES_EDGE_TEST_BUNDLE: bundle,
    },
  });
  const isHealthy = () =>
    fetch(`http://127.0.0.1:${PORT}/health`).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await isHealthy())) await new Promise((resolve) => setTimeout(resolve, 50));
  return child;
}

/** The launcher, and workerd below it. */
function processesOf({ pid }: ChildProcess): number[] {
  const below = execFileSync("pgrep", ["-P", String(pid), "workerd"], { encoding: "utf8" });
  return [Number(pid), ...below.trim().split("\n").map(Number)];
}

async function* eventsIn({ body }: Response): AsyncGenerator<StreamEvent> {
  let text = "";
  for await (const part of (body ?? new ReadableStream()).pipeThrough(new TextDecoderStream())) {
    text += part;
    const whole = text.split("\n\n");
    text = whole.pop() ?? "";
    for (const event of whole) {
      const data = /^data: (\{.*)$/m.exec(event)?.[1];
      if (data !== undefined) yield JSON.parse(data) as StreamEvent;
    }
  }
}

/** A terminal on which each piece appears at its time. Without animation all of them are visible. */
function svgOf(pieces: readonly Piece[]): string {
  const spans: string[] = [];
  let [line, column] = [0, 0];
  for (const { at, text, style } of pieces) {
    for (const word of text.split(/(\n|(?<=\s)(?=\S))/).filter((part) => part !== "")) {
      if (word === "\n" || column + word.length > COLUMNS) [line, column] = [line + 1, 0];
      if (word === "\n") continue;
      const x = (MARGIN + column * CHARACTER_WIDTH).toFixed(1);
      const y = TITLE_BAR + MARGIN + line * LINE_HEIGHT;
      const delay = `animation-delay:${(at / 1000).toFixed(2)}s`;
      spans.push(`<text class="${style}" x="${x}" y="${y}" style="${delay}">${escaped(word)}</text>`);
      column += word.length;
    }
  }
  const width = Math.ceil(2 * MARGIN + COLUMNS * CHARACTER_WIDTH);
  const height = TITLE_BAR + 2 * MARGIN + line * LINE_HEIGHT;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-labelledby="title description">
<title id="title">kill -9 in the middle of an answer</title>
<desc id="description">A recording made by scripts/record-kill.ts. The gateway is killed in mid-stream and started again. The reader goes on after its last event and gets the rest, without a lost or repeated token.</desc>
<style>
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre; }
.command { fill: #e6eaf1; } .before { fill: #7fb8ff; } .after { fill: #8ddb9f; } .note { fill: #ffd479; }
@media (prefers-reduced-motion: no-preference) {
  .command, .before, .after, .note { animation: appear .01s both; }
}
@keyframes appear { from { visibility: hidden; } to { visibility: visible; } }
</style>
<rect width="${width}" height="${height}" rx="10" fill="#141922"/>
<circle cx="22" cy="18" r="6" fill="#ff5f57"/><circle cx="42" cy="18" r="6" fill="#febc2e"/><circle cx="62" cy="18" r="6" fill="#28c840"/>
${spans.join("\n")}
</svg>
`;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}
