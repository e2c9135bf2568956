import { Agent, type IncomingMessage, request } from "node:http";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";

/** Requests and streams that continue while one process replaces another, with their results. */

export interface Load {
  /** The gateway's URL. */
  url: string;
  /** The number of streams that are open. */
  streams: number;
  /** True if a stream that has ended is followed by another one at once, on the same connection. */
  isEndless?: boolean;
  /** The words of each stream, and the words per second. */
  words: number;
  wordsPerSecond: number;
  /** Short requests per second, in addition to the streams. */
  rate: number;
}

export interface Outcome {
  requests: number;
  /** The streams that have ended. */
  streams: number;
  /** The reasons why requests and streams failed or were wrong. */
  failures: string[];
  /** Requests that were sent again, because the server closed the idle connection on which they were sent. */
  resent: number;
  /** The times of short requests, in order. Milliseconds. */
  latencies: number[];
}

export interface RunningLoad {
  /** The number of streams that have had output. */
  openStreams(): number;
  /** Starts nothing new, waits until all have ended, and reads each response again. */
  finish(): Promise<Outcome>;
}

/** Connections that are kept alive as clients keep them. */
const agent = new Agent({ keepAlive: true, maxFreeSockets: 256 });

/** A conversation has its next turn once so many wait for theirs. */
const IDLE_CONVERSATIONS = 20;

type Answered = { id: string; status: string; output: { content?: { text: string }[] }[] };

const FORMAT = {
  type: "json_schema",
  name: "fields",
  schema: {
    type: "object",
    properties: Object.fromEntries(Array.from({ length: 12 }, (_, index) => [`field${index}`, { type: "string" }])),
    required: Array.from({ length: 12 }, (_, index) => `field${index}`),
    additionalProperties: false,
  },
};

/** Begins streams and requests. */
export function beginLoad(load: Load): RunningLoad {
  const { url, streams, words, wordsPerSecond, rate, isEndless } = load;
  const failures: string[] = [];
  const latencies: number[] = [];
  /** The text that the server has sent of each stored response. */
  const said = new Map<string, string>();
  const underWay: Promise<void>[] = [];
  const watched = (what: string, work: () => Promise<void>) => {
    underWay.push(work().catch((error: Error) => void failures.push(`${at()} ${what}: ${error.message}`)));
  };

  const at = () => new Date().toISOString();
  let open = 0;
  let ended = 0;
  let isGoing = true;
  const slow = `simulator?words=${words}&tps=${wordsPerSecond}`;
  const kinds: [string, () => Promise<object> | object][] = [
    ["a stored stream", () => ({ model: slow })],
    ["a background stream", () => ({ model: slow, background: true })],
    ["a stream in a conversation", async () => ({ model: slow, conversation: await conversation(url) })],
    // After a crash this response could not be resumed.
    [
      "a background stream of JSON",
      () => ({ model: `simulator?tps=${4 * wordsPerSecond}`, background: true, text: { format: FORMAT } }),
    ],
  ];
  for (let index = 0; index < streams; index += 1) {
    const [what, body] = kinds[index % kinds.length] ?? fail("no kind");
    const one = async (connection: Agent) => {
      const asked = { input: "Go on.", stream: true, ...(await body()) };
      const stream = await readStream(url, asked, connection, () => (open += 1));
      said.set(stream.id, stream.text);
      ended += 1;
    };
    const connection = new Agent({ keepAlive: true, maxSockets: 1 });
    watched(what, async () => {
      do await one(connection).catch((error: Error) => void failures.push(`${at()} ${what}: ${error.message}`));
      while (isEndless && isGoing);
      connection.destroy();
    });
  }

  /** Conversations without a turn under way. */
  const idle: string[] = [];
  const short: (() => Promise<string>)[] = [
    async () => created(await ask(url, "POST", "/v1/responses", { input: "Hello!" })),
    async () => created(await ask(url, "POST", "/v1/responses", { input: "Hello!", store: false }), false),
    async () => created(await ask(url, "POST", "/v1/responses", { input: "And?", previous_response_id: known() })),
    async () => created(await ask(url, "GET", `/v1/responses/${known()}`)),
    async () => {
      const known = (idle.length >= IDLE_CONVERSATIONS && idle.shift()) || (await conversation(url));
      const id = created(await ask(url, "POST", "/v1/responses", { input: "You?", conversation: known }));
      idle.push(known);
      return id;
    },
  ];
  let last = "";
  const known = () => last;
  function created({ id, output }: Answered, isStored = true): string {
    if (isStored) {
      said.set(id, textOf(output));
      last = id;
    }
    return id;
  }
  const going = (async () => {
    const first = performance.now();
    await short[0]?.();
    const begun = performance.now();
    latencies.push(begun - first);
    for (let index = 1; isGoing; index += 1) {
      await sleep(Math.max(0, begun + (index * 1000) / rate - performance.now()));
      watched("a request", async () => {
        const at = performance.now();
        await short[index % short.length]?.();
        latencies.push(performance.now() - at);
      });
    }
  })().catch((error: Error) => void failures.push(`the first request: ${error.message}`));

  return {
    openStreams: () => open,
    finish: async () => {
      isGoing = false;
      await going;
      await Promise.all(underWay);
      for (const [id, heard] of said) {
        try {
          const { status, output } = await ask(url, "GET", `/v1/responses/${id}`);
          if (status !== "completed") failures.push(`${id}: ${status}`);
          else if (textOf(output) !== heard) failures.push(`${id}: its text is another one`);
        } catch (error) {
          failures.push(`${id} is not there: ${error instanceof Error ? error.message : error}`);
        }
      }
      agent.destroy();
      const inOrder = latencies.toSorted((a, b) => a - b);
      return { requests: latencies.length, streams: ended, failures, resent, latencies: inOrder };
    },
  };
}

async function conversation(url: string): Promise<string> {
  const { id } = await ask(url, "POST", "/v1/conversations", {});
  return id;
}

async function ask(url: string, method: string, path: string, body?: object): Promise<Answered> {
  const answer = await send(url, method, path, body);
  const said = await text(answer);
  if (answer.statusCode !== 200) throw new Error(`${method} ${path}: ${answer.statusCode} ${said.slice(0, 200)}`);
  return JSON.parse(said) as Answered;
}

/** Reads a stream to its end. Throws if an event is missing, or the last one. */
async function readStream(
  url: string,
  body: object,
  connection: Agent,
  opened: () => void,
): Promise<{ id: string; text: string }> {
  const answer = await send(url, "POST", "/v1/responses", body, connection);
  if (answer.statusCode !== 200) throw new Error(`${answer.statusCode} ${(await text(answer)).slice(0, 200)}`);
  let unread = "";
  let next = 0;
  let heard = "";
  let end: Answered | undefined;
  for await (const piece of answer.setEncoding("utf8") as AsyncIterable<string>) {
    unread += piece;
    const blocks = unread.split("\n\n");
    unread = blocks.pop() ?? "";
    for (const block of blocks) {
      const data = /^data: (\{.*)$/m.exec(block)?.[1];
      if (data === undefined) continue;
      const event = JSON.parse(data) as { type: string; sequence_number: number; delta?: string; response?: Answered };
      if (event.sequence_number !== next) throw new Error(`event ${event.sequence_number} in place of ${next}`);
      next += 1;
      if (event.type === "response.output_text.delta") {
        if (heard === "") opened();
        heard += event.delta ?? "";
      }
      if (event.type === "response.completed") end = event.response;
    }
  }
  if (!end) throw new Error(`it ended after event ${next - 1}`);
  if (textOf(end.output) !== heard) throw new Error("its deltas are not its text");
  return { id: end.id, text: heard };
}

let resent = 0;

/**
 * Sends a request. One that meets the end of an idle connection is sent again on another one, as clients do: a server may
 * close an idle connection at any time (RFC 9112, 9.5).
 */
function send(url: string, method: string, path: string, body?: object, from = agent): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const headers = body && { "content-type": "application/json" };
    const asked = request(`${url}${path}`, { method, agent: from, headers }, resolve);
    asked.on("error", (error) => {
      if (!asked.reusedSocket) return reject(error);
      resent += 1;
      resolve(send(url, method, path, body, from));
    });
    asked.end(body && JSON.stringify(body));
  });
}

function textOf(output: Answered["output"]): string {
  return output.flatMap(({ content = [] }) => content.map((part) => part.text)).join("");
}

function fail(message: string): never {
  throw new Error(message);
}
