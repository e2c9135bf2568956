import { load } from "../chains.ts";
import { startServe } from "../serve.ts";
import { quantile } from "../tables.ts";
import { type Row, responsesRequest, type TargetKind } from "../targets.ts";

/**
 * Long prompts by the profile of LiteLLM's benchmark (https://docs.litellm.ai/docs/benchmarks): equal shares of 50, 75
 * and 100 thousand tokens, half of them streamed, at most 16 tokens of answer; keys, limits and usage are on.
 */

const THOUSANDS = [50, 75, 100] as const;
export const LONG_MODEL = "simulator?words=16";
const CLIENTS = 12;

export const TURNS = "turns per core second";

const ROOT = `sk-admin-${"a".repeat(40)}`;

/** `serve` with a key that the admin API makes and that has limits. */
export function withKeys(): TargetKind {
  let headers: Record<string, string> = {};
  return {
    name: "serve, keys and limits",
    async start({ port }) {
      const served = await startServe(port, { variables: { ADMIN_KEY: ROOT, ALLOW_ANONYMOUS: "false" } });
      const limits = { requests_per_minute: 1_000_000, tokens_per_minute: 10_000_000_000 };
      const answer = await fetch(`http://127.0.0.1:${served.port}/v1/admin/keys`, {
        method: "POST",
        headers: { authorization: `Bearer ${ROOT}`, "content-type": "application/json" },
        body: JSON.stringify({ tenant: "acme", name: "bench", limits }),
      });
      const { value } = (await answer.json()) as { value: string };
      headers = { authorization: `Bearer ${value}` };
      return served;
    },
    request: (question) => responsesRequest(question, { store: false }, headers),
  };
}

/** About as many tokens as thousands: an English word with its space has 5 bytes here. */
const prompt = (thousands: number) => [{ role: "user" as const, content: "word ".repeat(thousands * 1_000) }];

export const longPrompts: Row = {
  name: "50, 75 and 100 k tokens, 12 clients",
  metrics: { [TURNS]: 1, "turns a second": 1, "CPU ms of a turn": 1, "first byte p50 ms": 0, "first byte p99 ms": 0 },
  hasRatios: false,
  async measure(target, scale) {
    const kinds = THOUSANDS.flatMap((thousands) => [true, false].map((stream) => ({ thousands, stream })));
    const requests = Array.from({ length: CLIENTS }, (_, client) => {
      const { thousands, stream } = kinds[client % kinds.length] ?? { thousands: 50, stream: true };
      return target.request({ model: LONG_MODEL, stream, history: prompt(thousands) });
    });
    const window = { ...scale, windowMs: 4 * scale.windowMs };
    const { samples, seconds, micros } = await load(target, requests, CLIENTS, window);
    const first = samples.map(({ firstByteMs }) => firstByteMs);
    return {
      [TURNS]: 1e6 / micros,
      "turns a second": samples.length / seconds,
      "CPU ms of a turn": micros / 1_000,
      "first byte p50 ms": quantile(first, 0.5),
      "first byte p99 ms": quantile(first, 0.99),
    };
  },
};
