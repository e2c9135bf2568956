import type { Dialect } from "@responses-edge/engines/dialects/dialect";
import { overLostConnections } from "@responses-edge/engines/lost-connection";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import {
  asUsersMessage,
  type Guard,
  GuardFault,
  type Judged,
  type Judgement,
  judge as judgeBy,
  ModeratedTurn,
  moderatedImages,
  moderatedText,
  modesOf,
} from "@responses-edge/turn/guard-models";
import type { Config } from "../config/index.ts";
import { tenantCacheSalt } from "./affinity.ts";
import { askOwnModel, jsonOf } from "./own-model.ts";

/** Judges a text for a tenant. Rejects with GuardFault where the guard cannot be asked, and with the signal's reason. */
export async function judge(judged: Judged, tenant: string, config: Config, signal: AbortSignal): Promise<Judgement> {
  const guard = guardOf(tenant, config);
  if (!guard) throw new GuardFault("There is no guard.");
  return judgeBy(judged, guard, signal);
}

function guardOf(tenant: string, config: Config): Guard | undefined {
  const { model, hook, timeoutMs = 0 } = config.guard ?? {};
  if (hook) return { timeoutMs, hook: { ...hook, tenant } };
  if (!model) return undefined;
  const { format, policy, takesImages } = model;
  const ask: NonNullable<Guard["model"]>["ask"] = async (question, signal) => {
    const body = ({ separatesTenants, misreadsLastAnswer }: Dialect) => {
      const salt = separatesTenants === true && { cache_salt: tenantCacheSalt(tenant) };
      const asked = misreadsLastAnswer ? asUsersMessage(question) : question;
      return JSON.stringify({ model: model.name, ...asked, ...salt });
    };
    const asked = { config, signal, withinMs: timeoutMs };
    return jsonOf(await overLostConnections(() => askOwnModel(model, "/chat/completions", body, asked), signal));
  };
  return { timeoutMs, model: { format, policy, takesImages, ask } };
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
  const modes = guard && modesOf(guard, request.moderation);
  if (!guard || !modes) return undefined;
  return new ModeratedTurn({
    model: guard.name,
    judge: (judged, signal) => judge(judged, tenant, config, signal),
    modes,
    failsOpen: guard.failsOpen,
    input: () => ({
      text: [request.instructions ?? "", moderatedText(input)].filter((text) => text !== "").join("\n"),
      images: moderatedImages(input),
    }),
    earlier: moderatedText(output),
  });
}
