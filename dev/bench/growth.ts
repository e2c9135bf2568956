import { Connection, hammer, post, type Request } from "./load.ts";
import { exactCpuSeconds } from "./processes.ts";
import { startServe } from "./serve.ts";
import { number, table } from "./tables.ts";
import { type Running, responseIdIn, type Upstream } from "./targets.ts";

/** `npm run bench -- --growth`: the cost of a turn as its conversation grows. */

export const GROWTH_MODEL = "simulator?words=20";

/** The numbers of turns before the measured ones. */
const LENGTHS = [10, 100, 1_000] as const;

/** A measurement is the mean of this many turns, half of them before the length. */
export const TURNS = 20;

const create = (body: object): Request =>
  post("/v1/responses", { model: GROWTH_MODEL, input: "Please say something more about it.", ...body }, "resp_");

/** A way to continue. */
export interface Way {
  name: string;
  /** Returns the request of the next turn. */
  begin(connection: Connection): Promise<(before: string) => object>;
}

export const CONVERSATION: Way = {
  name: "in a conversation",
  begin: async (connection) => {
    const { text } = await connection.read(post("/v1/conversations", {}, "conv_"));
    const { id } = JSON.parse(text) as { id: string };
    return () => ({ conversation: id });
  },
};

export const PREVIOUS_ID: Way = {
  name: "by `previous_response_id`",
  begin: async () => (before) => (before === "" ? {} : { previous_response_id: before }),
};

export const SAME_BYTES: Way = {
  name: "one message of as many bytes, `store: false`",
  begin: async () => {
    let length = 0;
    return () => {
      // A turn's text, both sides, and the text around it in the prompt.
      length += 220;
      return { store: false, input: "word ".repeat(Math.ceil(length / 5)) };
    };
  },
};

/** Measures the CPU of a turn, by the number of turns before it. */
export async function measureGrowth(upstream: Upstream, progress: (text: string) => void): Promise<string> {
  const served = await startServe(upstream.port);
  const rows: string[][] = [];
  // A new process still has code to compile.
  for (const store of [true, false]) await hammer(served.port, create({ store }), { clients: 8, durationMs: 2_000 });
  for (const way of [CONVERSATION, PREVIOUS_ID, SAME_BYTES]) {
    progress(way.name);
    const micros = await measureWay(served, way, LENGTHS);
    const [first = 1, , last = 0] = micros;
    rows.push([way.name, ...micros.map((each) => number(each, 0)), `× ${number(last / first, 2)}`]);
  }
  await served.stop();
  return table(["CPU µs of a turn", ...LENGTHS.map((length) => `turn ${number(length, 0)}`), "last : first"], rows);
}

/** Gives the CPU of a turn, in microseconds, at each number of turns: the mean of `TURNS` turns. */
export async function measureWay(served: Running, way: Way, lengths: readonly number[]): Promise<number[]> {
  const turns = await Turns.begin(served, way);
  const micros: number[] = [];
  for (const length of lengths) {
    await turns.takeUntil(length - TURNS / 2);
    micros.push(await turns.measure());
  }
  return micros;
}

/** The turns of a client that goes on in a way, on a connection of its own for each part. */
export class Turns {
  readonly #served: Running;
  readonly #next: (before: string) => object;
  #id = "";
  #taken = 0;

  private constructor(served: Running, next: (before: string) => object) {
    this.#served = served;
    this.#next = next;
  }

  static async begin(served: Running, way: Way): Promise<Turns> {
    const connection = await Connection.open(served.port);
    const next = await way.begin(connection);
    connection.close();
    return new Turns(served, next);
  }

  /** Takes turns until there are so many. Gives their CPU, in microseconds. */
  async takeUntil(count: number): Promise<number> {
    const { port, pid } = this.#served;
    const connection = await Connection.open(port);
    const before = exactCpuSeconds(pid);
    for (; this.#taken < count; this.#taken += 1) {
      this.#id = responseIdIn((await connection.read(create(this.#next(this.#id)))).text);
    }
    const micros = (exactCpuSeconds(pid) - before) * 1e6;
    connection.close();
    return micros;
  }

  /** Takes `TURNS` turns, and gives the CPU of one, in microseconds. */
  async measure(): Promise<number> {
    return (await this.takeUntil(this.#taken + TURNS)) / TURNS;
  }
}
