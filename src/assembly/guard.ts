import { readBoundedText } from "@responses-edge/bounded-body";
import {
  GuardFault,
  guardFormat,
  type Judged,
  type Judgement,
  joined,
  ModeratedTurn,
  type ModerationMode,
  moderatedText,
  piecesOf,
  readHookAnswer,
} from "@responses-edge/guard-models";
import type { CreateRequest } from "@responses-edge/responses-api/create-request";
import { ApiError } from "@responses-edge/responses-api/errors";
import { forEachAtOnce, MAX_CONCURRENT_CALLS } from "@responses-edge/turn/call-answers";
import type { Config } from "../config/index.ts";
import { askOwnModel, jsonOf } from "./own-model.ts";
import { tenantCacheSalt } from "./session.ts";

/** Asks the operator's guard: a model, or a hook. */

/** A hook's answer has no more bytes. */
const MAX_HOOK_BYTES = 64 * 1024;

/** Judges a text for a tenant. Rejects with GuardFault where the guard cannot be asked, and with the signal's reason. */
export async function judge(judged: Judged, tenant: string, config: Config, signal: AbortSignal): Promise<Judgement> {
  const { side, text } = judged;
  const pieces = piecesOf(text);
  if (!pieces) throw new GuardFault(`The ${side} is too long to be moderated.`);
  const judgements: Judgement[] = [];
  await forEachAtOnce(pieces, MAX_CONCURRENT_CALLS, async (piece) => {
    judgements.push(await judgePiece({ side, text: piece }, tenant, config, signal));
  });
  return joined(judgements);
}

async function judgePiece(judged: Judged, tenant: string, config: Config, signal: AbortSignal): Promise<Judgement> {
  const { guard } = config;
  if (!guard) throw new GuardFault("There is no guard.");
  const timeout = AbortSignal.timeout(guard.timeoutMs);
  const either = AbortSignal.any([signal, timeout]);
  try {
    if (guard.hook) return await askHook(guard.hook, judged, tenant, either, guard.timeoutMs);
    if (!guard.model) throw new GuardFault("There is no guard.");
    const { model } = guard;
    const format = guardFormat(model.format);
    const answers = await Promise.all(
      format.requests(judged, model.policy).map(async (question) => {
        const body = ({ separatesTenants }: { separatesTenants?: boolean | undefined }) =>
          JSON.stringify({
            model: model.name,
            ...question,
            ...(separatesTenants === true && { cache_salt: tenantCacheSalt(tenant) }),
          });
        const options = { config, signal: either, withinMs: guard.timeoutMs };
        return jsonOf(await askOwnModel(model, "/chat/completions", body, options));
      }),
    );
    return format.read(answers);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof GuardFault) throw error;
    if (timeout.aborted) throw new GuardFault("The guard did not answer in time.");
    // A guard's own words may tell of the operator's servers.
    throw new GuardFault(
      error instanceof ApiError ? `The guard could not be asked (${error.code}).` : "The guard could not be asked.",
    );
  }
}

async function askHook(
  { url, apiKey, fetch }: NonNullable<NonNullable<Config["guard"]>["hook"]>,
  { side, text }: Judged,
  tenant: string,
  signal: AbortSignal,
  timeoutMs: number,
): Promise<Judgement> {
  const headers = {
    "content-type": "application/json",
    ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }),
  };
  const body = JSON.stringify({ type: side, text, tenant });
  const response = await fetch(url, { method: "POST", headers, body, signal });
  const answer = await readBoundedText(response, { maxBytes: MAX_HOOK_BYTES, timeoutMs, signal });
  if (!response.ok) throw new GuardFault(`The hook answered with status ${response.status}.`);
  return readHookAnswer(jsonOf(answer));
}

/** A turn whose texts are to be judged: as its request asks for, or as the operator does. */
interface Moderated {
  request: CreateRequest;
  tenant: string;
  input: readonly { type: string }[];
  /** The items that it had put out before a crash. */
  output: readonly { type: string }[];
}

/** The moderation of a turn; undefined where nothing of it is judged. */
export function moderationOf({ request, tenant, input, output }: Moderated, config: Config): ModeratedTurn | undefined {
  const { guard } = config;
  if (!guard) return undefined;
  const { moderation } = request;
  // OpenAI gives both results where nothing else is asked for.
  const asked = (side: "input" | "output") => moderation && (moderation.policy?.[side]?.mode ?? "score");
  const modes = { input: stricter(guard.input, asked("input")), output: stricter(guard.output, asked("output")) };
  if (modes.input === undefined && modes.output === undefined) return undefined;
  return new ModeratedTurn({
    model: guard.name,
    judge: (judged, signal) => judge(judged, tenant, config, signal),
    modes,
    failsOpen: guard.failsOpen,
    input: () => [request.instructions ?? "", moderatedText(input)].filter((text) => text !== "").join("\n"),
    earlier: moderatedText(output),
  });
}

function stricter(
  one: ModerationMode | undefined,
  other: ModerationMode | null | undefined,
): ModerationMode | undefined {
  if (one === "block" || other === "block") return "block";
  return one ?? other ?? undefined;
}
