import { administration } from "./admin.ts";
import { batches } from "./batches.ts";
import { containers } from "./containers.ts";
import { conversations } from "./conversations.ts";
import { decisions } from "./decisions.ts";
import type { Endpoint } from "./endpoint.ts";
import { files } from "./files.ts";
import { models } from "./models.ts";
import { moderations } from "./moderations.ts";
import { passthrough } from "./passthrough.ts";
import { replays } from "./replays.ts";
import { responses } from "./responses.ts";
import { description, health, metrics } from "./status.ts";
import { usage } from "./usage.ts";
import { vectorStores } from "./vector-stores.ts";
import { webhookEndpoints } from "./webhook-endpoints.ts";

/** Every endpoint, in the order of docs/reference/endpoints.md. */
export const endpoints: readonly Endpoint[] = [
  ...responses,
  ...replays,
  ...conversations,
  ...decisions,
  ...moderations,
  ...files,
  ...containers,
  ...vectorStores,
  ...batches,
  ...webhookEndpoints,
  ...models,
  ...passthrough,
  ...administration,
  ...usage,
  ...health,
  ...metrics,
  ...description(() => endpoints),
];
