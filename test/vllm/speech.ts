import type { Engine } from "./model-server.ts";

/** The intended output of a model, independent of the engine. */
export interface Speech {
  /** Its reasoning. Default `hm`. None if it is empty and the call is forced. */
  thought?: string;
  text?: string;
  /** Calls of functions, arguments as text. A gpt-oss makes one per completion. The others are ignored. */
  calls?: readonly { name: string; arguments: string }[];
  /** A call of a custom tool. A chat model that is forced to make it writes only its input. */
  input?: { name: string; text: string; isForced?: boolean };
  /**
   * True if a grammar applies directly after the reasoning and allows no gap. Needed for forced calls. The logits
   * processor skips gaps, but an older one did not.
   */
  bound?: boolean;
}

/** The user's text that makes a model output this, token by token, with a pause of `delay` milliseconds before each. */
export function saying(engine: Engine, speech: Speech, delay = 0): string {
  const script = engine === "chat" ? chatml(speech) : harmony(speech);
  return `${delay > 0 ? `DELAY=${delay} ` : ""}SCRIPT[[${script.replaceAll("<", "‹").replaceAll(">", "›")}]]`;
}

function chatml({ thought = "hm", text, calls = [], input, bound = false }: Speech): string {
  if (input?.isForced) return `${thought === "" ? "" : `<think>\n${thought}\n</think>`}${input.text}<|im_end|>`;
  if (input) {
    const call = { name: input.name, arguments: JSON.stringify({ input: input.text }) };
    return chatml({ thought, calls: [call], bound });
  }
  const gap = bound ? "" : "\n\n";
  const parts = calls.map(
    (call) => `<tool_call>\n{"name": "${call.name}", "arguments": ${call.arguments}}\n</tool_call>`,
  );
  if (text !== undefined) parts.unshift(text);
  return `<think>\n${thought}\n</think>${gap}${parts.join("\n")}<|im_end|>`;
}

function harmony({ thought = "hm", text, calls = [], input }: Speech): string {
  const [call] = calls;
  const messages = [`<|channel|>analysis<|message|>${thought}`];
  if (input) {
    messages.push(`<|channel|>commentary to=functions.${input.name}<|message|>${input.text}<|call|>`);
    return messages.join("<|end|><|start|>assistant");
  }
  if (call === undefined) messages.push(`<|channel|>final<|message|>${text ?? ""}`);
  else {
    if (text !== undefined) messages.push(`<|channel|>commentary<|message|>${text}`);
    messages.push(`<|channel|>commentary to=functions.${call.name} <|constrain|>json<|message|>${call.arguments}`);
  }
  return `${messages.join("<|end|><|start|>assistant")}${call === undefined ? "<|return|>" : "<|call|>"}`;
}

/** The user's text that is answered with `words(count)`. */
export function counting(count: number, delay = 0): string {
  return `${delay > 0 ? `DELAY=${delay} ` : ""}WORDS=${count}`;
}

/** `w0 w1 w2 …`: a text that shows missing and repeated parts. */
export function words(count: number): string {
  return Array.from({ length: count }, (_, index) => `w${index}`).join(" ");
}
