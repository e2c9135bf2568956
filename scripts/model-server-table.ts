/** The table of docs/model-servers.md: what each kind of model server is asked for and can do, as its dialect says. */
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
  required: "it alone is offered, with `required`",
  none: "it alone is offered",
};

const CONTINUES = { after_thoughts: yes, without_thoughts: "only without thoughts", never: "–" };

const COUNTING = { tokenize: "`/tokenize`", input_tokens: "`/v1/chat/completions/input_tokens`" };

function tenants({ separatesTenants }: Dialect): string {
  if (separatesTenants === undefined) return "unknown: the log warns";
  return separatesTenants ? "`cache_salt`" : 'shared: 503 unless `"shared_cache": true`';
}

function grammar({ grammar: own }: Dialect): string {
  return code(own, "checked; of `structured_outputs` only JSON");
}

/** vLLM's cards and SGLang's have vLLM's own field. */
function windowOf({ window, counting }: Dialect): string {
  return code(window?.join(".") ?? (counting === "tokenize" ? "max_model_len" : undefined), "unknown");
}

/** Each row: what is asked, and the cell of a kind. */
const ROWS: readonly (readonly [string, (dialect: Dialect) => string])[] = [
  ["Shown by", ({ name }) => SHOWN_BY[name]],
  ["`dialect`", ({ name }) => `\`${name}\``],
  ["Recognised by `owned_by`", ({ owner }) => code(owner, "–")],
  ["… or by a field of the JSON at", ({ probe }) => (probe ? `\`${probe.path.slice(1)}\`: \`${probe.field}\`` : "–")],
  [
    "A model that it does not have",
    ({ answersAnyModel }) => (answersAnyModel ? "400, by its list" : "400, by its words"),
  ],
  ["An adapter", ({ prefixesAdapters }) => (prefixesAdapters ? "`base:adapter`" : "by its name")],
  ["`max_output_tokens`", field("max_completion_tokens")],
  ["A tool that is chosen by name", ({ choice }) => CHOICES[choice]],
  ['`tool_choice: "required"`', ({ choice }) => (choice === "none" ? "not told; checked" : "told; checked")],
  ["`parallel_tool_calls`", field("parallel_tool_calls", "kept by the gateway")],
  ["`text.format`", ({ bindsFormat }) => (bindsFormat ? "bound; checked at the end" : "held back until checked")],
  ["`text.format` beside tools", ({ joinsFormat }) => (joinsFormat ? "`FORMAT_WITH_TOOLS`" : "binds the final text")],
  ["A schema's `pattern`", ({ bindsWholePatterns }) => (bindsWholePatterns ? "sent with `^…$` around it" : "as it is")],
  ["Grammars of custom tools, `structured_outputs`", grammar],
  ["Log probabilities beside tools", ({ logprobsWithTools }) => (logprobsWithTools ? yes : refused)],
  ["`enable_response_messages`", ({ fields }) => (fields ? refused : yes)],
  ["gpt-oss", ({ hasTokenIds }) => (hasTokenIds ? "Harmony, by token ids" : "the server's own template")],
  ["Earlier thoughts in the prompt", ({ unknownFields }) => (unknownFields === "refused" ? "left out" : yes)],
  ["Prompts are counted by", ({ counting }) => (counting ? COUNTING[counting] : "an estimate")],
  ["The window is read from", windowOf],
  ["Goes on in mid-text", ({ continues }) => CONTINUES[continues]],
  ["A prompt that is longer than its window", ({ cutsPrompts }) => (cutsPrompts ? "cut; noticed below a half" : "400")],
  [
    "An input that ends in an assistant's message",
    ({ misreadsLastAnswer }) => (misreadsLastAnswer ? "gets an empty user message" : "as it is"),
  ],
  ["Tenants in its prefix cache", tenants],
  ["Its load is read from `/metrics`", ({ gauges }) => (gauges ? yes : "–")],
  ["`thinking_token_budget`", field("thinking_token_budget")],
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
