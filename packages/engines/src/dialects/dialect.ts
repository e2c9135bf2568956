/** The kinds of model servers. Each has a file beside this one. */
export const DIALECT_NAMES = ["vllm", "llamacpp", "sglang", "ollama", "openai"] as const;
export type DialectName = (typeof DIALECT_NAMES)[number];

/**
 * A kind of model server, in facts: how it is recognised, what may be sent to it, and what it can do. Everything that is sent is made in
 * vLLM's words first; `spell` writes it in the dialect's.
 */
export interface Dialect {
  readonly name: DialectName;
  /** Its name as people write it. */
  readonly title: string;
  /** The `owned_by` of its model cards; undefined: nothing of its own. */
  readonly owner?: string;
  /** A path from the server's root, and a field of its JSON, which no other kind of server has. */
  readonly probe?: { path: string; field: string };
  /**
   * The fields that `/v1/chat/completions` takes, and how it spells them where it spells them otherwise. Undefined: all of vLLM's. Every
   * other field is refused where the client has sent it, and left out where this server would have added it.
   */
  readonly fields?: Readonly<Record<string, string>>;
  /** Its way with a field that it does not know: it is then sent, or refused, what no dialect names (extra fields of the client's). */
  readonly unknownFields: "ignored" | "refused";
  /** How the grammar of an answer is told: vLLM's `structured_outputs`, or the field that takes EBNF. Undefined: there is none. */
  readonly grammar?: "structured_outputs" | "grammar" | "ebnf";
  /** The choices of tools that it takes: one by its name, or only that there must be one, or none. */
  readonly choice: "named" | "required" | "none";
  /** It binds a text to its format; else such a text is not shown before it is known to keep to it. */
  readonly bindsFormat: boolean;
  /** Its grammar can let the model choose between calls and a text in its format (`FORMAT_WITH_TOOLS`). */
  readonly joinsFormat: boolean;
  /** It gives the log probabilities of a stream that may have calls. */
  readonly logprobsWithTools: boolean;
  /** How a prompt is counted: vLLM's `/tokenize`, or llama.cpp's `/v1/chat/completions/input_tokens`. Undefined: it is estimated. */
  readonly counting?: "tokenize" | "input_tokens";
  /** The field of a model card that has its window, in tokens, as a path. */
  readonly window?: readonly string[];
  /**
   * When it goes on with the text of the last message (`continue_final_message`): also where that has thoughts, or only where it has
   * none. An answer that was shown is not gone on with elsewhere.
   */
  readonly continues: "after_thoughts" | "without_thoughts" | "never";
  /** It takes an assistant's message at the end of the prompt for an open one, or for the user's, though it is not asked to. */
  readonly misreadsLastAnswer: boolean;
  /** It takes prompts of token ids at `/v1/completions`, and gives the ids of what it samples: Harmony needs them. */
  readonly hasTokenIds: boolean;
  /** It keeps the prompts of different tenants apart in its prefix cache (`cache_salt`). Undefined: nobody knows. */
  readonly separatesTenants?: boolean;
  /** It binds a schema's pattern only where that says how a text begins and how it ends. */
  readonly bindsWholePatterns?: boolean;
  /** It streams each token by itself, and its template writes an empty thought into a message that it goes on with. */
  readonly isTokenPerDelta?: boolean;
  /** Its template ends thoughts with a line feed that its answers have, too. */
  readonly endsThoughts?: boolean;
  /** It leaves out the oldest messages of a prompt that is longer than its window, says nothing of it, and tells no window. */
  readonly cutsPrompts?: boolean;
  /** It answers a request for a model that it does not have with the one that it has. */
  readonly answersAnyModel: boolean;
  /** An adapter is asked for as `base:adapter`, and its card has the adapter's name alone, which the base would answer. */
  readonly prefixesAdapters?: boolean;
  /** The lines of `/metrics` that count requests which run or wait; the first group is the number. */
  readonly gauges?: RegExp;
}
