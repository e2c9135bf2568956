import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { hammer } from "./load.ts";
import { cpuSeconds } from "./processes.ts";
import type { Scale } from "./scenarios.ts";
import { startServe } from "./serve.ts";
import { median, quantile } from "./statistics.ts";
import { number, table } from "./tables.ts";
import { responsesRequest, type Upstream } from "./targets.ts";
import { bundleFolder } from "./workers.ts";

/**
 * The same turns over a WebSocket and as SSE, sent to one `serve`. Over a WebSocket, every event is a frame of its own.
 */

const WAYS = ["SSE", "WebSocket"] as const;
type Way = (typeof WAYS)[number];

interface Case {
  name: string;
  words: number;
  perRead: number;
  clients: number;
}

const CASES: readonly Case[] = [
  { name: "500 deltas, 16 per HTTP chunk, 8 clients", words: 500, perRead: 16, clients: 8 },
  { name: "500 deltas, an HTTP chunk each (vLLM), 8 clients", words: 500, perRead: 1, clients: 8 },
  { name: "20 deltas, 16 per HTTP chunk, 8 clients", words: 20, perRead: 16, clients: 8 },
  { name: "20 deltas, 16 per HTTP chunk, 1 client", words: 20, perRead: 16, clients: 1 },
];

const modelOf = ({ words, perRead }: Case) => `simulator?words=${words}&chunk=${perRead}`;

export const SOCKET_MODELS: readonly string[] = [...new Set(CASES.map(modelOf))];

interface Cost {
  /** CPU µs of the Worker. */
  perDelta: number;
  perTurn: number;
  firstDeltaMs: number;
}

export interface SocketResults {
  case: Case;
  rounds: Record<Way, Cost>[];
}

/** Measures every case in both ways, alternately. */
export async function measureSockets(upstream: Upstream, scale: Scale): Promise<SocketResults[]> {
  const worker = await startServe({ bundle: bundleFolder, upstreamPort: upstream.port });
  const results: SocketResults[] = CASES.map((each) => ({ case: each, rounds: [] }));
  for (let round = 0; round < scale.rounds; round += 1) {
    for (const { case: each, rounds } of results) {
      const costs = {} as Record<Way, Cost>;
      for (const way of WAYS) {
        await load(way, worker.port, each, scale.warmUpMs);
        const before = cpuSeconds(worker.pid);
        const firsts = await load(way, worker.port, each, scale.windowMs);
        const perTurn = ((cpuSeconds(worker.pid) - before) * 1e6) / firsts.length;
        costs[way] = { perTurn, perDelta: perTurn / each.words, firstDeltaMs: quantile(firsts, 0.5) };
      }
      rounds.push(costs);
    }
  }
  await worker.stop();
  return results;
}

/** Sends requests again and again. Gives each turn's milliseconds until its first delta. */
async function load(way: Way, port: number, each: Case, durationMs: number): Promise<number[]> {
  const { words, clients } = each;
  const check = (deltas: number) => {
    if (deltas < words) throw new Error(`${way} sent ${deltas} deltas instead of ${words}`);
  };
  if (way === "SSE") {
    const request = responsesRequest({ model: modelOf(each), stream: true }, { store: false });
    const { samples } = await hammer(port, request, { clients, durationMs });
    return samples.map(({ needles, firstNeedleMs }) => {
      check(needles);
      return firstNeedleMs;
    });
  }
  const frame = textFrame(
    JSON.stringify({
      type: "response.create",
      model: modelOf(each),
      input: [{ role: "user", content: "Hello" }],
      store: false,
    }),
  );
  const sockets = await Promise.all(Array.from({ length: clients }, () => BenchSocket.open(port)));
  const firsts: number[] = [];
  const start = performance.now();
  await Promise.all(
    sockets.map(async (socket) => {
      while (performance.now() - start < durationMs) {
        const { deltas, firstDeltaMs } = await socket.turn(frame);
        check(deltas);
        firsts.push(firstDeltaMs);
      }
      socket.close();
    }),
  );
  return firsts;
}

const DELTA = Buffer.from('"type":"response.output_text.delta"');
const TERMINAL = Buffer.from('{"type":"response.completed"');

/**
 * A client that counts frames by their beginnings, and parses none, because it shares the machine with the measured
 * process.
 */
class BenchSocket {
  readonly #socket: Socket;
  #held: Buffer = Buffer.alloc(0);
  #onFrame: (payload: Buffer) => void = () => {};

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("data", (data: Buffer) => this.#push(data));
  }

  static async open(port: number): Promise<BenchSocket> {
    const socket = connect(port, "127.0.0.1");
    socket.setNoDelay(true);
    const key = randomBytes(16).toString("base64");
    socket.write(
      `GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: Upgrade\r\n` +
        `sec-websocket-version: 13\r\nsec-websocket-key: ${key}\r\n\r\n`,
    );
    const [head] = (await once(socket, "data")) as [Buffer];
    if (!head.toString("latin1").startsWith("HTTP/1.1 101")) throw new Error(`no upgrade: ${head}`);
    return new BenchSocket(socket);
  }

  turn(frame: Buffer): Promise<{ deltas: number; firstDeltaMs: number }> {
    const started = performance.now();
    let deltas = 0;
    let firstDeltaMs = 0;
    return new Promise((resolve) => {
      this.#onFrame = (payload) => {
        if (payload.subarray(0, 64).includes(DELTA)) {
          deltas += 1;
          if (deltas === 1) firstDeltaMs = performance.now() - started;
        } else if (payload.subarray(0, TERMINAL.length).equals(TERMINAL)) resolve({ deltas, firstDeltaMs });
      };
      this.#socket.write(frame);
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #push(data: Buffer): void {
    const bytes = this.#held.length > 0 ? Buffer.concat([this.#held, data]) : data;
    let at = 0;
    for (;;) {
      const end = frameEnd(bytes, at);
      if (end === undefined || end.end > bytes.length) break;
      this.#onFrame(bytes.subarray(end.payload, end.end));
      at = end.end;
    }
    this.#held = bytes.subarray(at);
  }
}

/** The beginning and the end of the payload of the server's frame at `at`; undefined while its head is incomplete. */
function frameEnd(bytes: Buffer, at: number): { payload: number; end: number } | undefined {
  if (bytes.length < at + 2) return undefined;
  const short = bytes.readUInt8(at + 1);
  if (short < 126) return { payload: at + 2, end: at + 2 + short };
  const payload = at + (short === 126 ? 4 : 10);
  if (bytes.length < payload) return undefined;
  const length = short === 126 ? bytes.readUInt16BE(at + 2) : Number(bytes.readBigUInt64BE(at + 2));
  return { payload, end: payload + length };
}

/** A client's frame. Its mask is zero and has no effect. */
function textFrame(text: string): Buffer {
  const payload = Buffer.from(text);
  const head = Buffer.alloc(8);
  head.writeUInt8(0x81, 0);
  head.writeUInt8(0x80 | 126, 1);
  head.writeUInt16BE(payload.length, 2);
  return Buffer.concat([head, payload]);
}

export function socketReport(machine: string, results: readonly SocketResults[]): string {
  const rows = results.flatMap(({ case: { name }, rounds }) => {
    const cell = (way: Way, read: (cost: Cost) => number, digits: number) =>
      number(median(rounds.map((round) => read(round[way]))), digits);
    const ratio = median(rounds.map(({ SSE, WebSocket }) => WebSocket.perTurn / SSE.perTurn)).toPrecision(2);
    return [
      [`**${name}** CPU µs / delta`, ...WAYS.map((way) => cell(way, ({ perDelta }) => perDelta, 2)), `×${ratio}`],
      ["CPU µs / turn", ...WAYS.map((way) => cell(way, ({ perTurn }) => perTurn, 0)), `×${ratio}`],
      ["first delta p50 ms", ...WAYS.map((way) => cell(way, ({ firstDeltaMs }) => firstDeltaMs, 2)), ""],
    ];
  });
  return `${machine}\n\n${table(["", ...WAYS, "WebSocket to SSE"], rows)}`;
}
