import type { TextVariables } from "../../src/config/index.ts";

/** The lines of the banner about the configuration. */

/** The sources of keys, by the variable that names each. */
const KEY_SOURCES = [
  ["API_KEYS", "those of API_KEYS"],
  ["ADMIN_KEY", "those that the admin API makes"],
  ["JWT_ISSUER", "tokens of JWT_ISSUER"],
] as const;

/** The sources of the keys that are accepted, in words; empty if there are none. */
export function keySourcesOf(variables: TextVariables): string {
  return KEY_SOURCES.filter(([name]) => variables[name])
    .map(([, whose]) => whose)
    .join(", ");
}

/** The model servers, in a line of the banner. The banner does not wait for their answers, which are told after it. */
export function backendOf({ UPSTREAMS: pool, VLLM_BASE_URL: url }: TextVariables): string {
  return `${pool ? "the model servers of UPSTREAMS" : url}. How ${pool ? "each" : "it"} answers is told below.`;
}

/** The names of encrypted data, in a line of the banner. */
export function sealingOf({ ENCRYPTION_KEYS: keys }: TextVariables): string {
  return keys
    ? "reasoning goes to clients as encrypted_content, too (ENCRYPTION_KEYS)."
    : "nothing. Without ENCRYPTION_KEYS, reasoning goes to clients as plain text only.";
}
