import { createHash } from "node:crypto";
import type { Dialect } from "@responses-edge/engines/dialects/dialect";
import { overLostConnections } from "@responses-edge/engines/lost-connection";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import type { TurnAddress } from "@responses-edge/responses-api/ids";
import {
  asUsersMessage,
  type Guard,
  GuardFault,
  type Judged,
  type Judgement,
  judge as judgeBy,
  ModeratedTurn,
  moderatedText,
  modesOf,
  UnjudgedInput,
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
interface Moderated extends TurnAddress {
  request: CreateRequest;
  tenant: string;
  history: ConstructorParameters<typeof UnjudgedInput>[0];
  /** The items that it had put out before a crash. */
  output: readonly { type: string }[];
}

/** The moderation of a turn; undefined where nothing of it is judged. */
export function moderationOf(
  { request, tenant, home, turn, history, output }: Moderated,
  config: Config,
): ModeratedTurn | undefined {
  const { guard } = config;
  const modes = guard && modesOf(guard, request.moderation);
  if (!guard || !modes) return undefined;
  return new ModeratedTurn({
    model: guard.name,
    judge: (judged, signal) => judge(judged, tenant, config, signal),
    judgeTools: (text, signal) => judgeTools(text, tenant, config, signal),
    modes,
    failsOpen: guard.failsOpen,
    input: new UnjudgedInput(history, { home, turn }),
    earlier: moderatedText(output),
  });
}

/** The judgements of tools, by a hash of their text and of their guard; oldest first. */
const judgedTools = new Map<string, Judgement>();
const MAX_JUDGED_TOOLS = 1_000;

/** Judges tools, unless this isolate has judged the same ones lately: most turns of an agent repeat them. */
async function judgeTools(text: string, tenant: string, config: Config, signal: AbortSignal): Promise<Judgement> {
  const key = createHash("sha256").update(`${tenant}\n${config.guard?.name}\n${text}`).digest("base64");
  const known = judgedTools.get(key);
  // Its tokens were counted when it was made.
  if (known) return { ...known, tokens: undefined };
  const made = await judge({ side: "input", text }, tenant, config, signal);
  judgedTools.set(key, made);
  const [oldest] = judgedTools.keys();
  if (judgedTools.size > MAX_JUDGED_TOOLS && oldest !== undefined) judgedTools.delete(oldest);
  return made;
}
