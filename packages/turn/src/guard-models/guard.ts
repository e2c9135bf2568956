import { readBoundedText } from "@responses-edge/bounded-io/body";
import { forEachAtOnce } from "@responses-edge/bounded-io/long-work";
import { ApiError } from "@responses-edge/responses-api/errors";
import type { JsonObject } from "@responses-edge/responses-api/json";
import { type GuardFormatName, guardFormat, readHookAnswer } from "./formats.ts";
import { GuardFault, type Judged, type Judgement, joined, MAX_IMAGES, piecesOf } from "./judgement.ts";

/** A guard: a model over chat completions, or a hook over HTTP. */
export type Guard = { timeoutMs: number } & (
  | { model: GuardModel; hook?: undefined }
  | { hook: GuardHook; model?: undefined }
);

interface GuardModel {
  format: GuardFormatName;
  /** It judges images, too. */
  takesImages: boolean;
  policy: string | undefined;
  /** Gives the body of a chat completion's answer. Rejects with ApiError. */
  ask: (question: JsonObject, signal: AbortSignal) => Promise<JsonObject>;
}

interface GuardHook {
  url: string;
  apiKey: string | undefined;
  fetch: (url: string, init: RequestInit) => Promise<Response>;
  tenant: string;
}

/** The maximum bytes of a hook's answer. */
const MAX_HOOK_BYTES = 64 * 1024;

/**
 * Judges a text, piece by piece, and the images beside it, each with the text's first piece, if the guard judges images.
 * Rejects with GuardFault if the guard does not answer, and with the signal's reason.
 */
export async function judge(
  { side, text, images = [] }: Judged,
  guard: Guard,
  signal: AbortSignal,
): Promise<Judgement> {
  const pieces = piecesOf(text);
  if (!pieces || images.length > MAX_IMAGES) throw new GuardFault(`The ${side} is too long to be moderated.`);
  const [first = ""] = pieces;
  const seen = guard.hook || guard.model.takesImages ? images : [];
  const withImages = seen.map((image): Judged => ({ side, text: first, images: [image] }));
  // An image's question has the first piece in it.
  const alone = pieces.slice(withImages.length > 0 ? 1 : 0).map((piece): Judged => ({ side, text: piece }));
  const judgements: Judgement[] = [];
  await forEachAtOnce([...withImages, ...alone], async (judged) => {
    const judgement = await judgePiece(judged, guard, signal);
    judgements.push(judged.images ? { ...judgement, hasImages: true } : judgement);
  });
  return joined(judgements);
}

async function judgePiece(judged: Judged, guard: Guard, signal: AbortSignal): Promise<Judgement> {
  const timeout = AbortSignal.timeout(guard.timeoutMs);
  const either = AbortSignal.any([signal, timeout]);
  try {
    if (guard.hook) return await askHook(guard.hook, judged, either, guard.timeoutMs);
    const { format: name, policy, ask } = guard.model;
    const format = guardFormat(name);
    const questions = format.requests(judged, policy);
    return format.read(await Promise.all(questions.map((question) => ask(question, either))));
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof GuardFault) throw error;
    if (timeout.aborted) throw new GuardFault("The guard did not answer in time.");
    // A guard's own words may tell of the operator's servers.
    const code = error instanceof ApiError ? ` (${error.code})` : "";
    throw new GuardFault(`The guard could not be asked${code}.`);
  }
}

async function askHook(
  { url, apiKey, fetch, tenant }: GuardHook,
  { side, text, images }: Judged,
  signal: AbortSignal,
  timeoutMs: number,
): Promise<Judgement> {
  const headers = {
    "content-type": "application/json",
    ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }),
  };
  const body = JSON.stringify({ type: side, text, ...(images && { images }), tenant });
  const response = await fetch(url, { method: "POST", headers, body, signal });
  const answer = await readBoundedText(response, { maxBytes: MAX_HOOK_BYTES, timeoutMs, signal });
  if (!response.ok) throw new GuardFault(`The hook answered with status ${response.status}.`);
  return readHookAnswer(JSON.parse(answer));
}
