import { ApiError, contextLengthExceeded, invalidRequest } from "@responses-edge/responses-api/errors";

/**
 * `max_tokens` for vLLM's `/v1/completions`, right for every version since 0.10:
 * - null is "what is left of the window" up to 0.23, and 16 from 0.24 on: it is never sent.
 * - From 0.20 on vLLM takes up to the whole window and clamps it to what the prompt leaves.
 * - Before, prompt and `max_tokens` together must fit, so the prompt has to be counted.
 * - More than the window is a 400 everywhere. A server's behaviour is learnt from its first answer and remembered, so
 *   that a turn needs no further call.
 */

/** gpt-oss's own context window, for a server that does not report it. */
export const GPT_OSS_WINDOW = 131_072;

/** How long learnt facts are remembered, in milliseconds: another version may replace a server. */
const REMEMBER_MS = 600_000;

/** Two attempts may fail, because of an unknown window and of a server that does not clamp. */
const MAX_ATTEMPTS = 3;

/** Learnt facts about servers: whether they clamp `max_tokens`, and the windows that they have named in a refusal. */
const clamping = new Map<string, { at: number; value: boolean }>();
const windows = new Map<string, { at: number; value: number }>();

/** `max_tokens` alone exceeds the window (0.16 and later). The group is the window. */
const ABOVE_WINDOW = /cannot be greater than max_model_len\s*=\s*(\d+)/i;

/** Prompt and `max_tokens` together exceed the window, in the texts of versions before 0.20. */
const DO_NOT_FIT = /is too large: \d+|However, you requested \d+ |in the completion|requested output tokens/i;

const WINDOW_IN_WORDS = /maximum context length (?:is|of) (\d+)/i;

/** The prompt leaves no token for the answer. */
const NO_ROOM = /max_tokens must be at least 1/i;

/** A prompt whose answer is to be limited. */
export interface LimitedPrompt {
  /** The key of learnt facts: the server that is asked next, or was asked last. */
  server: () => string;
  model: string;
  /** The model's window from its card, if that has it. */
  window: number | undefined;
  /** The client's limit, less the tokens that the turn has used. */
  wanted: number | undefined;
  /** The prompt to send, if it need not be counted. */
  body: string | number[];
  /** The prompt as token ids; only the beginning if it has more than `limit`. */
  count(limit: number): Promise<number[]>;
}

/**
 * Sends a prompt with the right `max_tokens` by `post`, and again if the server turns out to count differently: at most
 * three times, and once as soon as the server is known. Throws the 400 that names `input` for a prompt that fills the
 * window, the one that names `max_output_tokens` for a limit beyond the window, and otherwise as `post` does.
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
    // With an assumed window nothing is counted: the server's refusal names the real one.
    const mustCount: boolean = isKnown && (didNotFit || (clamps === false && !surelyFits(prompt.body, asked, most)));
    const { body, limit } = mustCount ? await counted(prompt, most) : { body: prompt.body, limit: asked };
    try {
      const answer = await post(body, limit);
      // Any prompt has a token, so only a server that clamps accepts this one.
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
      // Other texts are only about the prompt, once a server is known to clamp.
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
  // Not renewed by every answer, so that it is learnt anew from time to time.
  if (recall(learnt, key) !== value) learnt.set(key, { at: Date.now(), value });
}

/** 400: the prompt leaves no part of the window for an answer. */
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
