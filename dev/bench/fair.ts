import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { freePort } from "../../test/workerd/tools.ts";
import { OTHER_CORE, start, stop } from "./processes.ts";
import { startServe } from "./serve.ts";
import { number, percent, quantile, table } from "./tables.ts";

/**
 * `npm run bench -- --fair`: tenants at two saturated model servers, with and without `max_in_flight`. One of them sends a hundred requests
 * at a time while another sends one after another; then four equal tenants have different numbers of clients.
 */

/** Each answer: half a second for the prompt, and one to three seconds for its tokens. */
const MODELS = [10, 15, 20, 25, 30].map((words) => `simulator?ttft=500&tps=10&words=${words}`);
const SERVERS = 2;
const MAX_NUM_SEQS = 36;

const FLOOD_CLIENTS = 100;
const EQUAL_CLIENTS = [25, 50, 75, 100];
const WARM_UP_MS = 10_000;

/** What a tenant has got in a window. */
interface Got {
  tokens: number;
  answers: number;
  failed: number;
  /** Milliseconds to the first token of each answer. */
  firstTokens: number[];
}

interface Case {
  name: string;
  isLimited: boolean;
  /** The clients of each tenant, each of which sends one request after another. */
  clients: readonly number[];
}

export async function measureFair(windowMs: number, progress: (text: string) => void): Promise<string> {
  const ports = await Promise.all(Array.from({ length: SERVERS }, freePort));
  const file = fileURLToPath(new URL("batching-server.ts", import.meta.url));
  const servers = ports.map((port) =>
    start(process.execPath, [file, String(port), String(MAX_NUM_SEQS), ...MODELS], OTHER_CORE),
  );
  const run = async (each: Case) => {
    progress(each.name);
    return measure(ports, each, windowMs);
  };
  try {
    const alone = await run({ name: "alone", isLimited: false, clients: [0, 1] });
    const floods = [false, true].map((isLimited) => ({
      name: isLimited ? "a flood, with `max_in_flight`" : "a flood, without a limit",
      isLimited,
      clients: [FLOOD_CLIENTS, 1],
    }));
    const measured: [string, Got[]][] = [["alone", alone]];
    for (const flood of floods) measured.push([flood.name, await run(flood)]);
    const unlimited = tokensOf(measured[1]?.[1] ?? []);
    const base = quantile(alone[1]?.firstTokens ?? [], 0.5);
    const rows = measured.map(([name, got]) => {
      const [flood, other] = got;
      const p50 = quantile(other?.firstTokens ?? [], 0.5);
      return [
        name,
        number(p50, 0),
        `×${number(p50 / base, 2)}`,
        number(quantile(other?.firstTokens ?? [], 0.95), 0),
        number((flood?.answers ?? 0) / (windowMs / 1000), 1),
        flood?.answers ? percent(tokensOf(got) / unlimited) : "–",
        number(
          got.reduce((sum, { failed }) => sum + failed, 0),
          0,
        ),
      ];
    });
    const equal = [false, true].map((isLimited) => ({
      name: isLimited ? "with `max_in_flight`" : "without a limit",
      isLimited,
      clients: EQUAL_CLIENTS,
    }));
    const shares: string[][] = [];
    for (const each of equal) {
      const got = await run(each);
      const tokens = got.map((tenant) => tenant.tokens);
      shares.push([each.name, ...tokens.map((count) => percent(count / tokensOf(got))), number(jain(tokens), 3)]);
    }
    const head = [
      "the other tenant's requests",
      "first token p50, ms",
      "to alone",
      "p95, ms",
      "flood's answers / s",
      "throughput",
      "failed",
    ];
    const equalHead = ["four equal tenants", ...EQUAL_CLIENTS.map((clients) => `${clients} clients`), "Jain's index"];
    return `${table(head, rows)}\n\n${table(equalHead, shares)}`;
  } finally {
    await Promise.all(servers.map(stop));
  }
}

/** Measures what each tenant gets in the window. */
async function measure(ports: readonly number[], { isLimited, clients }: Case, windowMs: number): Promise<Got[]> {
  const hash = (key: string) => createHash("sha256").update(key).digest("hex");
  const keys = clients.map((_, index) => `key-of-tenant-${index}`);
  const upstreams = ports.map((port, index) => ({ name: `gpu-${index}`, url: `http://127.0.0.1:${port}/v1` }));
  const served = await startServe(0, {
    variables: {
      VLLM_BASE_URL: "",
      UPSTREAMS: JSON.stringify(upstreams),
      ...(isLimited && { UPSTREAM_MAX_IN_FLIGHT: String(MAX_NUM_SEQS) }),
      ALLOW_ANONYMOUS: "false",
      API_KEYS: keys.map((key, index) => `tenant-${index}:${hash(key)}`).join(","),
    },
  });
  const leave = new AbortController();
  const got = clients.map((): Got => ({ tokens: 0, answers: 0, failed: 0, firstTokens: [] }));
  const url = `http://127.0.0.1:${served.port}/v1/responses`;
  try {
    const window = { begin: performance.now() + WARM_UP_MS, end: performance.now() + WARM_UP_MS + windowMs };
    for (const [index, count] of clients.entries()) {
      for (let client = 0; client < count; client += 1)
        void ask(url, keys[index] ?? "", got[index] as Got, window, leave.signal);
    }
    await sleep(WARM_UP_MS + windowMs);
  } finally {
    leave.abort();
    await served.stop();
    await sleep(500);
  }
  return got;
}

/** A client, which sends one request after another. */
async function ask(
  url: string,
  key: string,
  got: Got,
  window: { begin: number; end: number },
  signal: AbortSignal,
): Promise<void> {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const isIn = (time: number) => time >= window.begin && time < window.end;
  // Clients begin one after another, and not in step.
  await sleep((Math.random() * WARM_UP_MS) / 2);
  for (let turn = 0; !signal.aborted; turn += 1) {
    const model = MODELS[Math.floor(Math.random() * MODELS.length)];
    const body = JSON.stringify({ model, input: `Hello ${turn} ${Math.random()}`, store: false, stream: true });
    const begun = performance.now();
    try {
      const answer = await fetch(url, { method: "POST", headers, body, signal });
      if (!answer.ok) throw new Error(String(answer.status));
      let isFirst = true;
      for await (const bytes of answer.body ?? []) {
        const now = performance.now();
        const deltas = Buffer.from(bytes).toString().split("event: response.output_text.delta").length - 1;
        if (deltas === 0) continue;
        if (isFirst && isIn(now)) got.firstTokens.push(now - begun);
        isFirst = false;
        if (isIn(now)) got.tokens += deltas;
      }
      if (isIn(performance.now())) got.answers += 1;
    } catch {
      if (signal.aborted) return;
      if (isIn(performance.now())) got.failed += 1;
      await sleep(100);
    }
  }
}

function tokensOf(got: readonly Got[]): number {
  return got.reduce((sum, { tokens }) => sum + tokens, 0);
}

/** Jain's index: 1 for equal shares, and 1 divided by their number if one has all. */
function jain(shares: readonly number[]): number {
  const sum = shares.reduce((total, share) => total + share, 0);
  return sum ** 2 / (shares.length * shares.reduce((total, share) => total + share ** 2, 0));
}
