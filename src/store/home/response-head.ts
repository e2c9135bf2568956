/**
 * The texts that most responses share, as single characters. A short turn then fits into its page of the database, where SQLite writes
 * a page, and not three: it moves the rest of a row above 1,002 bytes to a page of its own
 * (https://www.sqlite.org/fileformat2.html#cell_payload_overflow_pages).
 */

/**
 * Each text, by the code of its character: none that JSON has outside of its escapes. Stored rows have these codes: an entry never
 * changes, and new ones are added at free codes.
 */
const TEXTS: Readonly<Record<number, string>> = {
  1: '","object":"response","created_at":',
  2: ',"completed_at":',
  3: ',"status":"completed","background":false,"error":null,"incomplete_details":null,"model":"',
  4: '"previous_response_id":',
  5: 'null,"conversation":null,"instructions":',
  6: 'null,"tools":[],',
  7: '"tool_choice":"auto","parallel_tool_calls":true,"max_output_tokens":',
  8: 'null,"max_tool_calls":null,"temperature":',
  14: '"presence_penalty":0,"frequency_penalty":0,"top_logprobs":0,"text":{"format":{"type":"text"},"verbosity":"medium"},"reasoning":',
  15: '"truncation":"disabled","usage":{"input_tokens":',
  16: ',"input_tokens_details":{"cached_tokens":',
  17: ',"cache_write_tokens":0},"output_tokens":',
  18: ',"output_tokens_details":{"reasoning_tokens":',
  19: '},"total_tokens":',
  20: '},"store":true,"service_tier":"default","metadata":',
  21: '"safety_identifier":null,"access_programs":null,"moderation":null,"prompt":null,"prompt_cache_key":null,"prompt_cache_retention":null,"user":null}',
};

const escaped = (text: string) => text.replace(/[{}[\]]/g, "\\$&");
const ANY_TEXT = new RegExp(Object.values(TEXTS).map(escaped).join("|"), "g");
const ANY_CODE = new RegExp(
  `[${Object.keys(TEXTS)
    .map((code) => `\\u${Number(code).toString(16).padStart(4, "0")}`)
    .join("")}]`,
  "g",
);
const CODES = new Map(Object.entries(TEXTS).map(([code, text]) => [text, String.fromCharCode(Number(code))]));

/** The JSON text of a response without `output`, as it is stored. */
export function toStoredHead(json: string): string {
  return json.replace(ANY_TEXT, (text) => CODES.get(text) ?? text);
}

/** The JSON text of a response without `output`, as it was before it was stored. */
export function fromStoredHead(stored: string): string {
  return stored.replace(ANY_CODE, (code) => TEXTS[code.charCodeAt(0)] ?? code);
}
