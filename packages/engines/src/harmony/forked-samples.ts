import { finish } from "@responses-edge/bounded-io/long-work";
import { renderMessage, type Segment, type Tokenizer, tokenizing } from "@responses-edge/harmony";
import type { RawMessage, Sampled } from "@responses-edge/turn/contract/engine";
import { withHeader } from "./conversation.ts";
import { cutIds } from "./cut-samples.ts";
import { loadTokenizer } from "./load-tokenizer.ts";
import { fromRawMessage } from "./raw-messages.ts";

/** After `<|start|>`, the beginning of every message of the model, which is the end of its prompt. */
const ROLE = "assistant";

/** `samplesOf`, with the tokenizer. */
export async function samplesOfMessages(): Promise<
  (messages: readonly RawMessage[], open: string | undefined) => Sampled | undefined
> {
  const tokenizer = await loadTokenizer();
  return (messages, open) => samplesOf(messages, open, tokenizer);
}

/**
 * The samples of messages that the model has written in one round, as the tokens that it has for their text. With `open`, the last message
 * has only this text so far: of the tokens of the whole message, those that are in it. Undefined if the last message does not begin with it.
 */
function samplesOf(
  messages: readonly RawMessage[],
  open: string | undefined,
  tokenizer: Tokenizer,
): Sampled | undefined {
  const written = messages.map(fromRawMessage).filter(({ role }) => role === "assistant");
  const last = written.pop();
  if (!last) return undefined;
  const idsOf = (segments: Segment[]) => finish(tokenizing(segments, tokenizer));
  const all = [...written, last].flatMap((message) => renderMessage(withHeader(message, "channel-first")));
  const [, role = "", ...rest] = all;
  const ids = idsOf([String(role).slice(ROLE.length), ...rest]);
  if (open === undefined) return { ids };
  const whole = last.content.map((part) => (part.type === "text" ? part.text : "")).join("");
  if (!whole.startsWith(open)) return undefined;
  let kept = 0;
  const begun = cutIds(
    ids,
    (_text, lengths) => {
      kept = Math.max(0, ...lengths.filter((length) => length <= open.length));
      return kept;
    },
    tokenizer,
  );
  // The text may end within a token.
  return { ids: [...begun, ...idsOf([open.slice(kept)])] };
}
