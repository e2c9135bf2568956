import { forEachAtOnce } from "@responses-edge/bounded-io/long-work";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import { estimateTokens } from "@responses-edge/responses-api/estimate";
import { newModerationId } from "@responses-edge/responses-api/ids";
import { type Moderation, moderationRequest } from "@responses-edge/responses-api/moderations";
import { parse } from "@responses-edge/responses-api/validation-errors";
import { GuardFault, type Judgement, moderationFields } from "@responses-edge/turn/guard-models";
import { judge } from "../assembly/guard.ts";
import { checkMediaUrls } from "../assembly/media-policy.ts";
import type { Config } from "../config/index.ts";
import { countedUse } from "../store/limits/allowances.ts";
import { tellRequest } from "../telemetry/content-log.ts";
import type { Caller } from "./transport.ts";

/**
 * Judges texts and images (openai 7.59 `moderations`): each text of a list by itself, parts together. `body` is the request's, as parsed JSON.
 * Throws the 400s of a guard that there is not, that judges no images, and of an image that may not be fetched, the 429 of a limit, and the
 * 503 of a guard that cannot be asked.
 */
export async function moderate(caller: Caller, body: unknown): Promise<Moderation> {
  const { config, tenant, signal, observation } = caller;
  const { input, model } = parse(moderationRequest, body);
  checkGuard(config, "model", model);
  const { guard } = config;
  const images = checkImages(input, config);
  await checkMediaUrls(
    images.filter(({ url }) => !/^data:/i.test(url)),
    config,
    signal,
    "input",
  );
  const texts = textsOf(input);
  const createdAt = Date.now();
  const name = guard?.name ?? "";
  const estimated = estimateTokens(input);
  const read = { kind: "moderations" as const, model: name, tokens: estimated, prices: config.keys.prices };
  let used = 0;
  const asked = async () => {
    const judgements: Judgement[] = [];
    await forEachAtOnce([...texts.entries()], async ([index, text]) => {
      const judged = { side: "input" as const, text, images: images.map(({ url }) => url) };
      judgements[index] = await judge(judged, tenant, config, signal);
    });
    used = judgements.reduce((sum, each) => sum + (each.tokens ?? 0), 0) || estimated;
    return { value: judgements, tokens: used };
  };
  try {
    const judgements = await countedUse(caller, read, asked);
    const results = judgements.map(moderationFields);
    const said = { model: name, input, output: results, createdAt };
    tellRequest(caller, { endpoint: "POST /v1/moderations", ...said, status: "completed" });
    return { id: newModerationId(), model: name, results };
  } catch (error) {
    if (!(error instanceof GuardFault)) throw error;
    throw new ApiError({ status: 503, message: error.message, code: "moderation_unavailable" });
  } finally {
    const tokens = { input: used, cached: 0, output: 0, reasoning: 0 };
    if (observation) observation.measured.asked = { model: { name, upstream: name }, tokens };
  }
}

type ModerationInput = ReturnType<typeof moderationRequest.parse>["input"];

function textsOf(input: ModerationInput): string[] {
  if (typeof input === "string") return [input];
  if (typeof input[0] === "string") return input as string[];
  return [input.flatMap((part) => (typeof part === "object" && part.type === "text" ? [part.text] : [])).join("\n")];
}

/** The images of an input. Throws the 400 of a guard that judges none. */
function checkImages(input: ModerationInput, { guard }: Config): { url: string; param: string }[] {
  if (typeof input === "string") return [];
  return input.flatMap((part, at) => {
    if (typeof part === "string" || part.type === "text") return [];
    if (guard?.model?.takesImages === false) {
      const message = `The moderation model '${guard.name}' judges text.`;
      throw invalidRequest(`input[${at}].type`, message, "unsupported_content_type");
    }
    return [{ url: part.image_url.url, param: `input[${at}].image_url.url` }];
  });
}

/** Throws the 400 of a create that asks for moderation which there is not. */
export function checkModeration({ moderation }: CreateRequest, config: Config): void {
  if (moderation == null) return;
  checkGuard(config, "moderation.model", moderation.model);
}

function checkGuard({ guard }: Config, param: string, model: string | null | undefined): void {
  if (!guard) {
    throw invalidRequest(
      param,
      "This server has no guard for moderation (GUARD_MODEL, GUARD_URL).",
      "unsupported_parameter",
    );
  }
  if (model == null || guard.names.has(model)) return;
  const message = `The moderation model '${model.slice(0, 64)}' does not exist. The one of this server is '${guard.name}'.`;
  throw invalidRequest(param, message, "model_not_found");
}
