/** The kinds of model servers. Each has a file beside this one. */
export const DIALECT_NAMES = ["vllm", "llamacpp", "sglang", "ollama", "openai"] as const;
export type DialectName = (typeof DIALECT_NAMES)[number];

/**
 * A kind of model server, in facts: how it is recognised, which fields it takes, and what it supports. Every request is
 * made for vLLM first; `spell` translates it to the dialect.
 */
export interface Dialect {
  readonly name: DialectName;
  /** Its name as people write it. */
  readonly title: string;
  /** The `owned_by` of its model cards; undefined: nothing specific. */
  readonly owner?: string;
  /** A path from the server's root, and a field of its JSON, that no other kind of server has. */
  readonly probe?: { path: string; field: string };
  /**
   * The fields that `/v1/chat/completions` takes, and its names for them where they differ. Undefined: all of vLLM's.
   * Any other field is refused if the client has sent it, and left out if this server would have added it.
   */
  readonly fields?: Readonly<Record<string, string>>;
  /**
   * How it treats an unknown field, which decides whether fields that no dialect names (extra fields of the client's)
   * are sent or refused.
   */
  readonly unknownFields: "ignored" | "refused";
  /**
   * How it takes the grammar of an answer: vLLM's `structured_outputs`, or a field with EBNF. Undefined: not at all.
   */
  readonly grammar?: "structured_outputs" | "grammar" | "ebnf";
  /** The choices of tools that it takes: a tool's name, only that one is required, or none. */
  readonly choice: "named" | "required" | "none";
  /** It constrains a text to its format. Without this, such a text is not shown before it is known to have it. */
  readonly bindsFormat: boolean;
  /** Its grammar can let the model choose between calls and a text in its format (`FORMAT_WITH_TOOLS`). */
  readonly joinsFormat: boolean;
  /**
   * How the usage of an answer is known that is left at a stop string: the server tells it beside each token, by vLLM's
   * `continuous_usage_stats` or llama.cpp's `timings_per_token`, or ends the answer itself, because its `stop` is
   * OpenAI's. vLLM's and llama.cpp's `stop` also ends reasoning and calls. Undefined: the answer goes on to its end.
   */
  readonly usageAtStop?: "continuous_usage_stats" | "timings_per_token" | "stop";
  /** It binds a JSON object only to a schema. */
  readonly bindsObjectBySchema?: boolean;
  /** It gives the log probabilities of a stream that may have calls. */
  readonly logprobsWithTools: boolean;
  /**
   * How it counts a prompt: vLLM's `/tokenize`, or llama.cpp's `/v1/chat/completions/input_tokens`. Undefined: the
   * count is estimated.
   */
  readonly counting?: "tokenize" | "input_tokens";
  /** The path from its root that renders a prompt without answering it, where it has one. */
  readonly renders?: string;
  /** The path of a model card's field with its window, in tokens. */
  readonly window?: readonly string[];
  /**
   * It lists models that it has not loaded, whose cards have no window: a path from its root that loads the model which
   * the query names, and the path of its answer's field with the window.
   */
  readonly windowWhenLoaded?: { path: string; query: string; field: readonly string[] };
  /**
   * When it continues the text of the last message (`continue_final_message`): even if that has reasoning, or only if
   * it has none. A shown answer is not continued elsewhere.
   */
  readonly continues: "after_thoughts" | "without_thoughts" | "never";
  /** It leaves the reasoning before an open message open if the message is empty, and closes it before a line feed. */
  readonly leavesThoughtsOpen?: boolean;
  /**
   * It mistakes an assistant's message at the end of the prompt for an open one, or for the user's, without being asked
   * to.
   */
  readonly misreadsLastAnswer: boolean;
  /** It takes prompts of token ids at `/v1/completions`, and gives the ids of its samples: Harmony needs them. */
  readonly hasTokenIds: boolean;
  /** It keeps the prompts of different tenants apart in its prefix cache (`cache_salt`). Undefined: unknown. */
  readonly separatesTenants?: boolean;
  /** It enforces a schema's pattern only if that is anchored at both ends. */
  readonly bindsWholePatterns?: boolean;
  /** It streams each token separately, and its template writes empty reasoning into a message that it continues. */
  readonly isTokenPerDelta?: boolean;
  /** Its template ends reasoning with a line feed that its answers have, too. */
  readonly endsThoughts?: boolean;
  /** It silently truncates a prompt longer than its window from the beginning, and does not report its window. */
  readonly cutsPrompts?: boolean;
  /** It answers a request for a model that it lacks with the one that it has. */
  readonly answersAnyModel: boolean;
  /**
   * An adapter's name in requests is `base:adapter`. Its card has only the adapter's name, which the base would answer.
   */
  readonly prefixesAdapters?: boolean;
  /**
   * The lines of `/metrics` that count running or waiting requests; the first group is in those of waiting ones, and the second is the
   * number.
   */
  readonly gauges?: RegExp;
}
