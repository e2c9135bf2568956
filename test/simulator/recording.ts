import { isObject, type Json, type JsonObject, parseJson } from "../../dev/simulator/json.ts";

/** An answer without its changing parts: a body, or the events of a stream. */
export type Recording = { name: string; status: number; answer: Json };

/** Keys whose value changes each time, or depends on earlier requests. */
const VARYING: Record<string, Json> = {
  created: 0,
  logprob: 0,
  cached_tokens: 0,
  created_cache_tokens: 0,
  system_fingerprint: "vllm",
};

/** Makes a recording of an answer's text. */
export function recordingOf(name: string, status: number, text: string): Recording {
  if (!text.startsWith("data: ")) return { name, status, answer: stable(parseJson(text)) };
  const events = text.split("\n\n").filter((event) => event !== "");
  const answer = events.map((event) => {
    const data = event.slice("data: ".length);
    return data === "[DONE]" ? data : stable(parseJson(data));
  });
  return { name, status, answer };
}

function stable(value: Json | undefined, key = ""): Json {
  if (Array.isArray(value)) {
    if (key === "token_logprobs") return value.map(() => 0);
    // The next likely tokens are the model's own; their number is not.
    return value.map((entry) => stable(entry, key));
  }
  if (!isObject(value)) {
    if (typeof value === "string" && key === "id") return value.replace(/-[0-9a-f]+$/, "-…");
    return value !== null && Object.hasOwn(VARYING, key) ? (VARYING[key] ?? null) : (value ?? null);
  }
  if (key === "top_logprobs" && !Object.hasOwn(value, "token")) return Object.keys(value).length;
  const copy: JsonObject = {};
  for (const [name, entry] of Object.entries(value)) copy[name] = stable(entry, name);
  return copy;
}
