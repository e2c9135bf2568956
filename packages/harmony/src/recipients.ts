/** The offered tools of a turn, by the names that the model may write. */
export interface OfferedTools {
  /** The caller's name of a function, by the name that the model may write, without `functions.`. */
  functions: ReadonlyMap<string, string>;
  /** The recipients of functions in a caller's namespace, by the caller's name. */
  namespaced?: ReadonlyMap<string, string>;
  /** The caller's names of custom tools, whose bodies are no JSON. */
  custom?: ReadonlySet<string>;
  /** Built-in tools by their full names: `browser.search`, `python`, `container.exec`. */
  builtins: ReadonlySet<string>;
}

/**
 * The recipient of a message. `name` is the caller's for a function, else the full name of the tool (`browser.search`).
 */
export type Recipient =
  | { kind: "function"; name: string }
  | { kind: "builtin"; name: string }
  | { kind: "everybody" }
  | { kind: "unserved"; name: string };

/** Recipients that are no tool: a message to them is for everybody. */
const EVERYBODY = new Set(["", "assistant", "user", "all"]);

const FUNCTIONS = "functions.";

/**
 * The tool that a header's recipient means. The model may forget `functions.` before a function's name, or put it
 * before a built-in tool's; a caller's function with that name then has precedence (openai/gpt-oss `responses_api`).
 */
export function resolveRecipient(written: string, tools: OfferedTools): Recipient {
  const recipient = written.replace(/\s+code$/, "");
  if (EVERYBODY.has(recipient)) return { kind: "everybody" };
  if (!recipient.startsWith(FUNCTIONS)) {
    const builtin = builtinName(recipient, tools);
    if (builtin !== undefined) return { kind: "builtin", name: builtin };
    const name = tools.functions.get(recipient);
    return name === undefined ? { kind: "unserved", name: recipient } : { kind: "function", name };
  }
  const bare = recipient.slice(FUNCTIONS.length);
  const name = tools.functions.get(bare);
  if (name !== undefined) return { kind: "function", name };
  const builtin = builtinName(bare, tools);
  if (builtin !== undefined) return { kind: "builtin", name: builtin };
  return { kind: "unserved", name: recipient };
}

/** Tells whether a word is the name of an offered tool, so that it may be a recipient even without `to=`. */
export function isOfferedTool(word: string, tools: OfferedTools): boolean {
  const bare = word.startsWith(FUNCTIONS) ? word.slice(FUNCTIONS.length) : word;
  return tools.functions.has(bare) || builtinName(bare, tools) !== undefined;
}

/** The full name of a recipient, as a message to it should have it: `functions.f` for a bare `f`. */
export function fullName(written: string, recipient: Recipient, { namespaced }: OfferedTools): string {
  if (recipient.kind !== "function") return recipient.kind === "everybody" ? written : recipient.name;
  const inNamespace = namespaced?.get(recipient.name);
  if (inNamespace !== undefined) return inNamespace;
  return written.startsWith(FUNCTIONS) ? written : FUNCTIONS + written;
}

function builtinName(name: string, { builtins }: OfferedTools): string | undefined {
  if (builtins.has(name)) return name;
  // A namespace that is itself a tool has no others: `python.exec` can only mean `python`.
  const [namespace = ""] = name.split(".", 1);
  return builtins.has(namespace) ? namespace : undefined;
}
