import { CALL, CHANNEL, CONSTRAIN, END, type HarmonyTokenizer, MESSAGE, RETURN, START } from "./harmony-tokenizer.ts";

/** A message in the form that the model sees. */
export type HarmonyMessage = {
  role: string;
  /** The author's name; a tool's full name. */
  name: string | undefined;
  recipient: string | undefined;
  channel: string | undefined;
  contentType: string | undefined;
  content: string;
  /** The position of its `<|start|>` in the prompt. */
  at: number;
  /** The part of it that the prompt has reached. Only the last message may be open. */
  state: "header" | "content" | "closed";
};

const ROLES = ["system", "developer", "user", "assistant"];
const CLOSING = new Set<number>([END, RETURN, CALL]);

/** Reads a prompt's token ids. Text outside of messages is dropped. */
export function parseHarmony(ids: readonly number[], tokenizer: HarmonyTokenizer): HarmonyMessage[] {
  const messages: HarmonyMessage[] = [];
  for (let at = ids.indexOf(START); at >= 0; ) {
    const next = ids.indexOf(START, at + 1);
    messages.push(parseMessage(ids.slice(at + 1, next < 0 ? ids.length : next), at, tokenizer));
    at = next;
  }
  return messages;
}

/** The messages as JSON, for `mode=transcript`. */
export function transcript(messages: readonly HarmonyMessage[]): string {
  return JSON.stringify(
    messages.map(({ role, name, recipient, channel, contentType, content }) => ({
      role,
      name,
      recipient,
      channel,
      content_type: contentType,
      content,
    })),
  );
}

function parseMessage(ids: readonly number[], at: number, tokenizer: HarmonyTokenizer): HarmonyMessage {
  const closing = ids.findIndex((id) => CLOSING.has(id));
  const body = closing < 0 ? ids : ids.slice(0, closing);
  const message = body.indexOf(MESSAGE);
  const header = parseHeader(message < 0 ? body : body.slice(0, message), tokenizer);
  const content = message < 0 ? "" : tokenizer.decode(body.slice(message + 1));
  return { ...header, content, at, state: closing >= 0 ? "closed" : message >= 0 ? "content" : "header" };
}

function parseHeader(
  ids: readonly number[],
  tokenizer: HarmonyTokenizer,
): Pick<HarmonyMessage, "role" | "name" | "recipient" | "channel" | "contentType"> {
  const parts: string[] = [];
  let channel: string | undefined;
  let from = 0;
  for (let at = 0; at <= ids.length; at++) {
    const id = ids[at];
    if (id !== undefined && id !== CHANNEL && id !== CONSTRAIN) continue;
    const words = tokenizer
      .decode(ids.slice(from, at))
      .split(/\s+/)
      .filter((word) => word !== "");
    const opener = ids[from - 1];
    if (opener === CHANNEL) channel = words.shift();
    else if (opener === CONSTRAIN) words.unshift(`<|constrain|>${words.shift() ?? ""}`);
    parts.push(...words);
    from = at + 1;
  }
  const author = parts.shift() ?? "";
  const colon = author.indexOf(":");
  const role = colon < 0 ? author : author.slice(0, colon);
  const known = author === "" || ROLES.includes(role);
  return {
    role: known ? role : "tool",
    name: known ? (colon < 0 ? undefined : author.slice(colon + 1)) : author,
    recipient: parts.find((part) => part.startsWith("to="))?.slice("to=".length),
    channel,
    contentType: parts.findLast((part) => !part.startsWith("to=")),
  };
}
