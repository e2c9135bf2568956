import { badRequest } from "./errors.ts";

/** A fault and its time. `after` counts deltas: SSE events with generated tokens. */
export type Fault =
  | { kind: "refuse" | "stall_headers" | "html" | "json" }
  | { kind: "http"; status: number }
  | { kind: "stall" | "cut" | "end" | "error" | "engine" | "garbage"; after: number };

/** The settings of one answer. README.md has the table. */
export type Settings = {
  ttft: number;
  headersDelay: number;
  tps: number;
  chunk: number;
  perDelta: number | "odd";
  letters: boolean;
  words: number | undefined;
  mode: "echo" | "transcript";
  reasoning: boolean | undefined;
  reasoningField: "reasoning" | "reasoning_content" | "both";
  refusal: boolean;
  rounds: number;
  maxModelLen: number | undefined;
  cached: boolean;
  usage: boolean;
  done: boolean;
  bytes: number | undefined;
  crlf: boolean;
  comments: boolean;
  fault: Fault | undefined;
  faultTimes: number | undefined;
  flat: boolean;
  tokenIds: boolean;
  structuralTags: boolean;
  stops: boolean;
  harmony: string | undefined;
  script: "user" | undefined;
  version: "0.19" | "0.32";
  stray: boolean;
  says: string | undefined;
  usageAtFinish: boolean;
  thoughtTokens: boolean;
  thoughtsEnd: boolean;
  parsers: boolean;
  oldThoughts: "kept" | "dropped" | ThoughtVariable;
};

/** The variables with which chat templates keep the thoughts of earlier turns, with the value that does. */
export const THOUGHT_VARIABLES = {
  preserve_thinking: true,
  preserved_thinking: true,
  clear_thinking: false,
  drop_thinking: false,
  truncate_history_thinking: false,
};
type ThoughtVariable = keyof typeof THOUGHT_VARIABLES;

const DEFAULTS: Settings = {
  ttft: 0,
  headersDelay: 0,
  tps: 0,
  chunk: 1,
  perDelta: 1,
  letters: false,
  words: undefined,
  mode: "echo",
  reasoning: undefined,
  reasoningField: "reasoning",
  refusal: false,
  rounds: 1,
  maxModelLen: undefined,
  cached: true,
  usage: true,
  done: true,
  bytes: undefined,
  crlf: false,
  comments: false,
  fault: undefined,
  faultTimes: undefined,
  flat: false,
  tokenIds: true,
  structuralTags: true,
  stops: true,
  harmony: undefined,
  script: undefined,
  version: "0.32",
  stray: false,
  says: undefined,
  usageAtFinish: false,
  thoughtTokens: true,
  thoughtsEnd: false,
  parsers: true,
  oldThoughts: "kept",
};

const READERS: Record<string, (value: string, name: string) => Partial<Settings>> = {
  ttft: (v, n) => ({ ttft: number(v, n, 0) }),
  headers_delay: (v, n) => ({ headersDelay: number(v, n, 0) }),
  tps: (v, n) => ({ tps: number(v, n, 0) }),
  chunk: (v, n) => ({ chunk: integer(v, n, 1) }),
  per_delta: (v, n) => ({ perDelta: v === "odd" ? v : integer(v, n, 1) }),
  letters: (v, n) => ({ letters: flag(v, n) }),
  words: (v, n) => ({ words: integer(v, n, 0) }),
  mode: (v, n) => ({ mode: oneOf(v, n, ["echo", "transcript"]) }),
  reasoning: (v, n) => ({ reasoning: flag(v, n) }),
  reasoning_field: (v, n) => ({ reasoningField: oneOf(v, n, ["reasoning", "reasoning_content", "both"]) }),
  refusal: (v, n) => ({ refusal: flag(v, n) }),
  rounds: (v, n) => ({ rounds: integer(v, n, 0) }),
  max_model_len: (v, n) => ({ maxModelLen: integer(v, n, 1) }),
  cached: (v, n) => ({ cached: flag(v, n) }),
  usage: (v, n) => ({ usage: v === "finish" || flag(v, n), usageAtFinish: v === "finish" }),
  done: (v, n) => ({ done: flag(v, n) }),
  bytes: (v, n) => ({ bytes: integer(v, n, 1) }),
  crlf: (v, n) => ({ crlf: flag(v, n) }),
  comments: (v, n) => ({ comments: flag(v, n) }),
  fault: (v, n) => ({ fault: fault(v, n) }),
  fault_times: (v, n) => ({ faultTimes: integer(v, n, 0) }),
  flat: (v, n) => ({ flat: flag(v, n) }),
  token_ids: (v, n) => ({ tokenIds: flag(v, n) }),
  structural_tags: (v, n) => ({ structuralTags: flag(v, n) }),
  stops: (v, n) => ({ stops: flag(v, n) }),
  harmony: (v) => ({ harmony: v }),
  version: (v, n) => ({ version: oneOf(v, n, ["0.19", "0.32"]) }),
  stray: (v, n) => ({ stray: flag(v, n) }),
  says: (v) => ({ says: v }),
  thought_tokens: (v, n) => ({ thoughtTokens: flag(v, n) }),
  thoughts_end: (v, n) => ({ thoughtsEnd: flag(v, n) }),
  parsers: (v, n) => ({ parsers: flag(v, n) }),
  old_thoughts: (v, n) => ({
    oldThoughts: oneOf(v, n, ["kept", "dropped", ...(Object.keys(THOUGHT_VARIABLES) as ThoughtVariable[])]),
  }),
  script: (v, n) => ({ script: oneOf(v, n, ["user"]) }),
};

/** Splits a model name such as `simulator?ttft=50` into the served model and its settings. */
export function splitModel(name: string): { base: string; query: string } {
  const mark = name.indexOf("?");
  return mark < 0 ? { base: name, query: "" } : { base: name.slice(0, mark), query: name.slice(mark + 1) };
}

/**
 * Reads settings from query strings. A later one overrides an earlier one. Throws a 400 for an unknown name or a wrong
 * value, so that a typo in a test fails.
 */
export function parseSettings(...queries: string[]): Settings {
  const settings = { ...DEFAULTS };
  for (const query of queries) {
    if (query === "") continue;
    for (const [name, value] of new URLSearchParams(query)) {
      const read = Object.hasOwn(READERS, name) ? READERS[name] : undefined;
      if (read === undefined) throw badRequest(`Unknown simulator setting: ${name}`);
      Object.assign(settings, read(value, name));
    }
  }
  return settings;
}

const NULL_BODY = [204, 205, 304];

function fault(value: string, name: string): Fault {
  const [kind = "", count] = value.split(":", 2);
  const after = count !== undefined && /^\d+$/.test(count) ? Number(count) : undefined;
  switch (kind) {
    case "refuse":
    case "stall_headers":
    case "html":
    case "json":
      if (count === undefined) return { kind };
      break;
    case "http":
      if (after !== undefined && after >= 200 && after <= 599 && !NULL_BODY.includes(after))
        return { kind, status: after };
      break;
    case "stall":
    case "cut":
    case "end":
    case "error":
    case "engine":
    case "garbage":
      if (after !== undefined) return { kind, after };
  }
  throw wrong(value, name);
}

function number(value: string, name: string, least: number): number {
  const parsed = value === "" ? Number.NaN : Number(value);
  if (!Number.isFinite(parsed) || parsed < least) throw wrong(value, name);
  return parsed;
}

function integer(value: string, name: string, least: number): number {
  const parsed = number(value, name, least);
  if (!Number.isInteger(parsed)) throw wrong(value, name);
  return parsed;
}

function flag(value: string, name: string): boolean {
  return oneOf(value, name, ["0", "1"]) === "1";
}

function oneOf<const T extends string>(value: string, name: string, allowed: readonly T[]): T {
  const found = allowed.find((entry) => entry === value);
  if (found === undefined) throw wrong(value, name);
  return found;
}

function wrong(value: string, name: string): Error {
  return badRequest(`Wrong value for the simulator setting ${name}: ${value}`);
}
