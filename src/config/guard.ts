import { formatNameOf, GUARD_FORMATS, OPENAI_MODELS, takesImages } from "@responses-edge/turn/guard-models";
import { z } from "zod";
import type { OperatorNetwork } from "./network.ts";
import type { ServerValues } from "./servers.ts";
import { ownModel } from "./upstreams.ts";
import { headerSecret, httpUrl, milliseconds, modelName, serverUrl } from "./values.ts";
import { type Mistake, type Section, type ValuesOf, variable } from "./variable.ts";

/** Moderation: what judges texts, and what is judged of every turn. */

const mode = () =>
  z
    .enum(["off", "score", "block"])
    .default("off")
    .transform((given) => (given === "off" ? undefined : given));

export const guard = {
  title: "Moderation",
  variables: {
    model: variable(
      "GUARD_MODEL",
      modelName,
      "The guard model that moderates, asked by `/v1/chat/completions`: Llama Guard, gpt-oss-safeguard or Granite Guardian ([moderation.md](../moderation.md)).",
    ),
    baseUrl: variable(
      "GUARD_BASE_URL",
      serverUrl.optional(),
      "The server of `GUARD_MODEL`, such as `http://guard:8000/v1`. Without it a model server that lists the model is asked.",
    ),
    apiKey: variable(
      "GUARD_API_KEY",
      headerSecret.optional(),
      "Secret. The server of `GUARD_BASE_URL`, or the hook of `GUARD_URL`, receives it as `Authorization: Bearer`.",
    ),
    format: variable(
      "GUARD_FORMAT",
      z.enum(GUARD_FORMATS).optional(),
      `The format of \`GUARD_MODEL\`'s requests and answers: ${GUARD_FORMATS.map((name) => `\`${name}\``).join(", ")}. Its name tells it, as a rule.`,
    ),
    policy: variable(
      "GUARD_POLICY",
      z.string().min(1).max(65_536).optional(),
      "The policy for gpt-oss-safeguard, with its categories. Default: OpenAI's categories.",
    ),
    url: variable(
      "GUARD_URL",
      httpUrl.optional(),
      "A hook of your own instead of a guard model: it gets each text and answers in OpenAI's shape ([moderation.md](../moderation.md#a-hook-of-your-own)).",
    ),
    input: variable(
      "GUARD_INPUT",
      mode(),
      "The moderation of every turn's input: `off`, `score`, or `block` for flagged input. A request may be stricter, not less strict.",
    ),
    output: variable("GUARD_OUTPUT", mode(), "The same for the output."),
    timeoutMs: variable("GUARD_TIMEOUT_MS", milliseconds(10_000, 100), "The longest time of one judgement."),
    failsOpen: variable(
      "GUARD_FAILURE",
      z
        .enum(["block", "pass"])
        .default("block")
        .transform((given) => given === "pass"),
      "The result for a text under `block` if the guard does not answer. `block`: the turn ends with a 503 `moderation_unavailable`. `pass`: the turn goes on, and the response says so.",
    ),
  },
} satisfies Section;

type GuardValues = ValuesOf<typeof guard>;

export function guardMistakes({ model, url, format, input, output }: GuardValues): Mistake[] {
  const mistakes: Mistake[] = [];
  if (model !== undefined && url !== undefined)
    mistakes.push(["GUARD_URL", "set either GUARD_URL or GUARD_MODEL, not both"]);
  if (model !== undefined && format === undefined && formatNameOf(model) === undefined) {
    mistakes.push(["GUARD_FORMAT", "needed, because the name of GUARD_MODEL does not show its format"]);
  }
  const isWanted = input !== undefined || output !== undefined;
  if (isWanted && model === undefined && url === undefined) {
    mistakes.push(["GUARD_MODEL", "needed for GUARD_INPUT and GUARD_OUTPUT, or GUARD_URL"]);
  }
  return mistakes;
}

/** The settings of moderation; undefined where nothing judges. `aliases` are further names of models. */
export function guardConfig(
  { model, baseUrl, apiKey, format, policy, url, ...values }: GuardValues,
  servers: ServerValues,
  network: OperatorNetwork,
  aliases: Readonly<Record<string, string>>,
) {
  const own = ownModel(model, { url: baseUrl, apiKey }, "guard", network, servers);
  const hook = url === undefined ? undefined : { url, apiKey, fetch: network.fetch };
  if (!own && !hook) return undefined;
  const name = own?.name ?? "guard";
  const guardFormat = format ?? formatNameOf(name) ?? "llama-guard";
  const further = Object.keys(aliases).filter((alias) => aliases[alias] === name);
  return {
    ...values,
    name,
    /** The names of the guard that a request may use. OpenAI's model names are included, so that its clients work unchanged. */
    names: new Set([name, ...further, ...OPENAI_MODELS]) as ReadonlySet<string>,
    model: own && { ...own, format: guardFormat, policy, takesImages: takesImages(guardFormat, name) },
    hook,
  };
}
