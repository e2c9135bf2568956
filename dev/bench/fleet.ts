import { type Fleet, startFleet } from "../../test/e2e/fleet.ts";
import { quantile } from "./statistics.ts";
import { table } from "./tables.ts";

/**
 * `npm run bench -- --fleet`: the effect on clients while some servers of a pool are in trouble: the time to the first
 * token, and whether every word arrives once and in order.
 */

const REQUESTS = 600;
const CLIENTS = 12;
const WORDS = Array.from({ length: 12 }, (_, index) => `w${index}`).join(" ");
const MODELS = ["simulator?tps=200", "simulator-gpt-oss?tps=200"] as const;
/** The time in which a server must send headers while another one is free. Milliseconds. */
const FAILOVER_MS = 1_000;
const SLOW_MS = 300;

interface Trouble {
  name: string;
  /** Causes the trouble before the requests. */
  begin(fleet: Fleet): void;
  /** Changes the fleet in the middle of the requests. */
  middle?(fleet: Fleet): Promise<void>;
}

const ail = (place: number, trouble: string) => (fleet: Fleet) => {
  const replica = fleet.replicas[place];
  if (replica) replica.trouble = trouble;
};
const kill = async (fleet: Fleet) => fleet.replicas[1]?.die("kill");
const one = {
  slow: ail(1, `ttft=${SLOW_MS}`),
  hanging: ail(2, "fault=stall_headers"),
  failing: ail(3, "fault=http:500"),
};

const TROUBLES: readonly Trouble[] = [
  { name: "none", begin: () => {} },
  { name: `one of six waits ${SLOW_MS} ms before its first token`, begin: one.slow },
  { name: "one accepts and never answers", begin: one.hanging },
  { name: "one answers 500", begin: one.failing },
  { name: "one is killed in the middle", begin: () => {}, middle: kill },
  {
    name: "one is slow and killed in the middle, one hangs, one answers 500",
    begin(fleet) {
      for (const begin of Object.values(one)) begin(fleet);
    },
    middle: kill,
  },
];

/** Makes the table of all troubles, each in a fleet of its own. */
export async function measureFleetTroubles(progress: (text: string) => void): Promise<string> {
  const rows: string[][] = [];
  for (const trouble of TROUBLES) {
    progress(trouble.name);
    const servers = Object.fromEntries(["a", "b", "c", "d", "e", "f"].map((name) => [name, {}]));
    const fleet = await startFleet({ servers, variables: { UPSTREAM_FAILOVER_MS: String(FAILOVER_MS) } });
    trouble.begin(fleet);
    const firsts: number[] = [];
    let wrong = 0;
    let asked = 0;
    const client = async () => {
      while (asked < REQUESTS) {
        asked += 1;
        const number = asked;
        if (number === REQUESTS / 2) await trouble.middle?.(fleet);
        const model = MODELS[number % MODELS.length] ?? "";
        const begin = performance.now();
        const { first, text } = await read(fleet, { model, input: `${WORDS} ${number}`, stream: true });
        if (text.includes(`${WORDS} ${number}`)) firsts.push(first - begin);
        else wrong += 1;
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, client));
    await fleet.close();
    rows.push([trouble.name, ...[0.5, 0.95, 0.99].map((share) => quantile(firsts, share).toFixed(0)), String(wrong)]);
  }
  const head = [`${REQUESTS} streams, ${CLIENTS} at a time`, "p50 ms", "p95 ms", "p99 ms", "incorrect"];
  return table(head, rows);
}

/** The time to the first word of an answer, and to the last. */
async function read(fleet: Fleet, body: object): Promise<{ first: number; text: string }> {
  const answer = await fetch(`${fleet.url}/v1/responses`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  let first = Number.NaN;
  let events = "";
  const decoder = new TextDecoder();
  for await (const bytes of answer.body ?? []) {
    events += decoder.decode(bytes, { stream: true });
    if (Number.isNaN(first) && events.includes("event: response.output_text.delta")) first = performance.now();
  }
  const deltas = events.matchAll(/^data: (\{"type":"response\.output_text\.delta".*)$/gm);
  const text = [...deltas].map(([, json = ""]) => (JSON.parse(json) as { delta: string }).delta).join("");
  return { first, text };
}
