import { ApiError, contextLengthExceeded, invalidRequest } from "@responses-edge/responses-api/errors";

/**
 * `max_tokens` for vLLM's `/v1/completions`, right for every version since 0.10:
 * - null is "what is left of the window" up to 0.23, and 16 from 0.24 on: it is never sent.
 * - From 0.20 on vLLM takes up to the whole window and clamps it to what the prompt leaves.
 * - Before, prompt and `max_tokens` together must fit, so the prompt has to be counted.
 * - More than the window is a 400 everywhere.
 * A server's way is learnt from its first answer and remembered, so that a turn needs no further call.
 */

/** gpt-oss's own context window, for a server that does not tell. */
export const GPT_OSS_WINDOW = 131_072;

/** How long something learnt is remembered, in milliseconds: a server may be replaced by another version. */
const REMEMBER_MS = 600_000;

/** A window that is not known and a server that does not clamp are two surprises. */
const MAX_ATTEMPTS = 3;

/** A server as its answers have shown it: it clamps `max_tokens` or not, and the windows that it has named in refusing one. */
const clamping = new Map<string, { at: number; value: boolean }>();
const windows = new Map<string, { at: number; value: number }>();

/** `max_tokens` alone is more than the window (0.16 and later). The group is the window. */
const ABOVE_WINDOW = /cannot be greater than max_model_len\s*=\s*(\d+)/i;

/** Prompt and `max_tokens` together are more than the window, in the words of the versions before 0.20. */
const DO_NOT_FIT = /is too large: \d+|However, you requested \d+ |in the completion|requested output tokens/i;

const WINDOW_IN_WORDS = /maximum context length (?:is|of) (\d+)/i;

/** The prompt leaves no token to the answer. */
const NO_ROOM = /max_tokens must be at least 1/i;

/** A prompt whose answer's length is to be limited. */
export interface LimitedPrompt {
  /** The facts that are learnt are remembered by these: the server that is asked next, or was asked last. */
  server: () => string;
  model: string;
  /** The model's window by its card, if that tells. */
  window: number | undefined;
  /** The most that the client wants, less what the turn has used up. */
  wanted: number | undefined;
  /** The prompt as it is to be sent, if it need not be counted. */
  body: string | number[];
  /** The same as token ids; only the beginning of a prompt that has more than `limit` of them. */
  count(limit: number): Promise<number[]>;
}

/**
 * Sends a prompt with the right `max_tokens` by `post`, again where a server turns out to count otherwise: three times at
 * most, and once as soon as the server is known. Throws the 400 that names `input` for a prompt that fills the window,
 * that which names `max_output_tokens` for more than the window, and else as `post` does.
 */
export async function withOutputLimit<T>(
  prompt: LimitedPrompt,
  post: (body: string | number[], maxTokens: number) => Promise<T>,
): Promise<T> {
  const { wanted } = prompt;
  let didNotFit = false;
  for (let attempt = 1; ; attempt += 1) {
    const asking = prompt.server();
    const clamps = recall(clamping, asking);
    const named = recall(windows, `${asking} ${prompt.model}`);
    const window = Math.min(named ?? Number.POSITIVE_INFINITY, prompt.window ?? Number.POSITIVE_INFINITY);
    const isKnown = Number.isFinite(window);
    const most = isKnown ? window : GPT_OSS_WINDOW;
    if (isKnown && wanted !== undefined && wanted > window) throw aboveWindow(wanted, window);
    const asked = wanted ?? most;
    // Against a window that is only assumed nothing is counted: the server's refusal names its own.
    const mustCount: boolean = isKnown && (didNotFit || (clamps === false && !surelyFits(prompt.body, asked, most)));
    const { body, limit } = mustCount ? await counted(prompt, most) : { body: prompt.body, limit: asked };
    try {
      const answer = await post(body, limit);
      // Any prompt has a token, so only a server that clamps takes this one.
      if (isKnown && limit >= most) remember(clamping, prompt.server(), true);
      else if (didNotFit) remember(clamping, prompt.server(), false);
      return answer;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 400) throw error;
      if (NO_ROOM.test(error.message)) throw windowFull(most);
      const [, above] = ABOVE_WINDOW.exec(error.message) ?? [];
      const inWords = Number(above ?? WINDOW_IN_WORDS.exec(error.message)?.[1] ?? Number.NaN);
      const isNews = inWords > 0 && (!isKnown || inWords < window);
      if (isNews) remember(windows, `${prompt.server()} ${prompt.model}`, inWords);
      // Other words than these are about the prompt alone, once a server is known to clamp.
      const mayNotFit = DO_NOT_FIT.test(error.message) || (clamps !== true && inWords > 0);
      const shouldCount: boolean = above === undefined && !mustCount && mayNotFit && (isKnown || isNews);
      if (attempt === MAX_ATTEMPTS || !(isNews || shouldCount)) throw error;
      didNotFit = shouldCount;
    }
  }
}

/** Tells whether a prompt and its answer fit, without counting: a token has at least one byte. */
function surelyFits(body: string | number[], maxTokens: number, window: number): boolean {
  return (typeof body === "string" ? 3 * body.length : body.length) + maxTokens <= window;
}

async function counted(prompt: LimitedPrompt, window: number): Promise<{ body: number[]; limit: number }> {
  const body = await prompt.count(window);
  const left = window - body.length;
  if (left < 1) throw windowFull(window);
  return { body, limit: Math.min(prompt.wanted ?? left, left) };
}

function recall<Value>(learnt: ReadonlyMap<string, { at: number; value: Value }>, key: string): Value | undefined {
  const known = learnt.get(key);
  return known !== undefined && Date.now() - known.at < REMEMBER_MS ? known.value : undefined;
}

function remember<Value>(learnt: Map<string, { at: number; value: Value }>, key: string, value: Value): void {
  // Not renewed by every answer, so that it is found out anew now and then.
  if (recall(learnt, key) !== value) learnt.set(key, { at: Date.now(), value });
}

/** 400: the prompt leaves nothing of the window to an answer. */
export function windowFull(window: number): ApiError {
  return contextLengthExceeded(
    `Your input exceeds the context window of this model, which is ${window} tokens for input and output together. Please adjust your input and try again.`,
  );
}

export function aboveWindow(wanted: number, window: number): ApiError {
  return invalidRequest(
    "max_output_tokens",
    `'max_output_tokens' is too large: ${wanted}. This model's context window is ${window} tokens.`,
    "above_max_value",
  );
}
