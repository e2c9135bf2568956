/** The table of docs/model-servers.md: the facts of each kind of model server, from its dialect. */
import { DIALECTS } from "@responses-edge/engines/dialects/all";
import type { Dialect, DialectName } from "@responses-edge/engines/dialects/dialect";

/** The test or source that shows the cells of a column. */
const SHOWN_BY: Record<DialectName, string> = {
  vllm: "`npm run test:vllm`",
  llamacpp: "`npm run test:llamacpp`",
  sglang: "its source; `npm test` with the simulator. Not tried on a running one",
  ollama: "0.17.4 by hand; `npm test` with the simulator",
  openai: "`npm test` with the simulator. Not tried on a running one",
};

const yes = "✔";
const refused = "400";

/** A field of vLLM's as the server takes it. `HINTS` of `spell.ts` are left out where it is unknown. */
function field(name: string, otherwise = refused) {
  return ({ fields }: Dialect) => {
    const own = fields ? (Object.hasOwn(fields, name) ? fields[name] : undefined) : name;
    return own === undefined ? otherwise : `\`${own}\``;
  };
}

function code(text: string | undefined, otherwise: string): string {
  return text === undefined ? otherwise : `\`${text}\``;
}

const CHOICES = {
  named: "by its name",
  required: "offered alone, with `required`",
  none: "offered alone",
};

const CONTINUES = { after_thoughts: yes, without_thoughts: "only without reasoning", never: "–" };

const COUNTING = { tokenize: "`/tokenize`", input_tokens: "`/v1/chat/completions/input_tokens`" };

function tenants({ separatesTenants }: Dialect): string {
  if (separatesTenants === undefined) return "unknown: the log warns";
  return separatesTenants ? "`cache_salt`" : 'shared: 503 unless `"shared_cache": true`';
}

function grammar({ grammar: own }: Dialect): string {
  return code(own, "checked; `structured_outputs` only with JSON");
}

/** The models of vLLM and of SGLang have the same field. */
function windowOf({ window, counting }: Dialect): string {
  return code(window?.join(".") ?? (counting === "tokenize" ? "max_model_len" : undefined), "unknown");
}

/** Each row: its title, and its cell for a kind. */
const ROWS: readonly (readonly [string, (dialect: Dialect) => string])[] = [
  ["Shown by", ({ name }) => SHOWN_BY[name]],
  ["`dialect`", ({ name }) => `\`${name}\``],
  ["Recognised by `owned_by`", ({ owner }) => code(owner, "–")],
  ["… or by a field of the JSON at", ({ probe }) => (probe ? `\`${probe.path.slice(1)}\`: \`${probe.field}\`` : "–")],
  ["An unknown model", ({ answersAnyModel }) => (answersAnyModel ? "400, by the server's list" : "400 of the server")],
  ["An adapter", ({ prefixesAdapters }) => (prefixesAdapters ? "`base:adapter`" : "by its name")],
  ["`max_output_tokens`", field("max_completion_tokens")],
  ["A tool chosen by name", ({ choice }) => CHOICES[choice]],
  ['`tool_choice: "required"`', ({ choice }) => (choice === "none" ? "not sent; checked" : "sent; checked")],
  ["`parallel_tool_calls`", field("parallel_tool_calls", "enforced by the gateway")],
  ["`text.format`", ({ bindsFormat }) => (bindsFormat ? "enforced; checked at the end" : "held back until checked")],
  [
    "`text.format` beside tools",
    ({ joinsFormat }) => (joinsFormat ? "`VLLM_FORMAT_WITH_TOOLS`" : "enforced on the final text"),
  ],
  ["A schema's `pattern`", ({ bindsWholePatterns }) => (bindsWholePatterns ? "sent with `^…$` around it" : "as it is")],
  ["Grammars of custom tools, `structured_outputs`", grammar],
  ["Usage of an answer that a `stop` string ends", ({ usageAtStop }) => code(usageAtStop, "of the whole answer")],
  ["Log probabilities beside tools", ({ logprobsWithTools }) => (logprobsWithTools ? yes : refused)],
  ["`enable_response_messages`", ({ fields }) => (fields ? refused : yes)],
  ["gpt-oss", ({ hasTokenIds }) => (hasTokenIds ? "Harmony, by token ids" : "the server's own template")],
  ["Earlier reasoning in the prompt", ({ unknownFields }) => (unknownFields === "refused" ? "left out" : yes)],
  ["Prompts are counted with", ({ counting }) => (counting ? COUNTING[counting] : "an estimate")],
  ["The window is read from", windowOf],
  ["Continues a text", ({ continues }) => CONTINUES[continues]],
  ["A prompt longer than its window", ({ cutsPrompts }) => (cutsPrompts ? "cut; detected below a half" : "400")],
  [
    "An input that ends in an assistant's message",
    ({ misreadsLastAnswer }) => (misreadsLastAnswer ? "gets an empty user message" : "as it is"),
  ],
  ["Tenants in its prefix cache", tenants],
  ["Its load is read from `/metrics`", ({ gauges }) => (gauges ? yes : "–")],
  ["`thinking_token_budget`", field("thinking_token_budget", "enforced by the gateway")],
  ...["top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "stop_token_ids", "logit_bias"].map(
    (name) => [`\`${name}\``, field(name)] as const,
  ),
  ["`chat_template_kwargs`", field("chat_template_kwargs")],
  ["`priority`", field("priority", "left out")],
  ["vLLM's other fields", ({ fields }) => (fields ? refused : yes)],
  ["`VLLM_EXTRA_FIELDS`", ({ unknownFields }) => (unknownFields === "ignored" ? "sent" : refused)],
];

/** The head of the table, and its rows. */
export function modelServerTable(): [head: string[], rows: string[][]] {
  const kinds = Object.values(DIALECTS);
  const rows = ROWS.map(([title, cell]) => [title, ...kinds.map(cell)]);
  return [["", ...kinds.map(({ name, title }) => (name === "openai" ? "Another server" : title))], rows];
}
