import { dohResolver, type GuardOptions, isPublicUrl } from "@responses-edge/outgoing-fetch/guarded";
import { z } from "zod";
import { type OperatorNetwork, publicFetch } from "./network.ts";
import { flag, fromBase64, httpUrl, urlPrefixes } from "./values.ts";
import { type Mistake, type Section, type ValuesOf, variable } from "./variable.ts";

/** Webhooks, which announce the ends of background responses and of batches. */

/** The minimum of Standard Webhooks. */
const MIN_SECRET_BYTES = 24;

const webhookSecret = z
  .string()
  .trim()
  .transform((text, context) => {
    const secret = fromBase64(/^whsec_(.*)$/.exec(text)?.[1] ?? "");
    if (secret.length >= MIN_SECRET_BYTES) return secret;
    const message = `expected whsec_ and at least ${MIN_SECRET_BYTES} bytes of base64`;
    context.addIssue({ code: "custom", message });
    return z.NEVER;
  })
  .optional();

export const webhooks = {
  title: "Webhooks",
  variables: {
    url: variable(
      "WEBHOOK_URL",
      httpUrl.optional(),
      "The URL that receives a webhook when a background response or a batch of any tenant ends.",
    ),
    secret: variable(
      "WEBHOOK_SECRET",
      webhookSecret,
      "Secret. `whsec_…` and at least 24 bytes of base64, which sign the webhooks.",
    ),
    mayBePrivate: variable(
      "ALLOW_PRIVATE_WEBHOOKS",
      flag,
      "`true` allows a private address or `http://` in `WEBHOOK_URL`.",
    ),
    isListed: variable(
      "WEBHOOK_URLS",
      urlPrefixes(),
      "URL prefixes that the webhook endpoints of tenants may have besides public https addresses.",
    ),
  },
} satisfies Section;

type WebhookValues = ValuesOf<typeof webhooks>;

/** Checks the variables of webhooks against each other. The URL must be public unless the operator allows others. */
export function webhookMistakes({ url, secret, mayBePrivate }: WebhookValues): Mistake[] {
  if (url === undefined) return [];
  const mistakes: Mistake[] = [];
  if (secret === undefined) mistakes.push(["WEBHOOK_SECRET", "needed to sign the webhooks to WEBHOOK_URL"]);
  if (!mayBePrivate && !isPublicUrl(url)) mistakes.push(["WEBHOOK_URL", "expected an https URL of a public address"]);
  return mistakes;
}

/** The settings of webhooks; undefined if none are sent. */
export function webhookConfig({ url, secret, mayBePrivate }: WebhookValues, network: OperatorNetwork) {
  if (url === undefined || secret === undefined) return undefined;
  return { url, secret, fetch: mayBePrivate ? network.fetch : publicFetch };
}

/** Bounds of an endpoint's answer: its time, and its bytes, which are dropped. */
const TIMEOUT_MS = 15_000;
const MAX_ANSWER_BYTES = 65_536;

/** Guards calls of the endpoints that tenants name: public https addresses, looked up where DNS is configured, and listed URLs. */
export function webhookGuard(
  { isListed }: WebhookValues,
  network: OperatorNetwork,
  dohUrl: string | undefined,
): GuardOptions {
  return {
    allow: isListed,
    fetchListed: network.fetch,
    allowPublic: true,
    ...(dohUrl !== undefined && { resolve: dohResolver(dohUrl, network.fetch) }),
    timeoutMs: TIMEOUT_MS,
    maxBytes: MAX_ANSWER_BYTES,
  };
}
