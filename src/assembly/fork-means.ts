import { samplesOfMessages } from "@responses-edge/engines/harmony/forked-samples";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { Model } from "@responses-edge/turn/contract/engine";
import type { ForkMeans } from "@responses-edge/turn/fork";
import { PLUGINS } from "../tools/plugins.ts";

/** The functions of tools and of an engine by which a branch begins. */
export async function forkMeans({ engine }: Pick<Model, "engine">): Promise<ForkMeans> {
  return {
    toolOf: (item) => PLUGINS.toolOf(item),
    exchangeOf: (item, replay, output) => PLUGINS.exchangeOf(item as Item, replay, output as readonly Item[]),
    sampledOf: engine === "harmony" ? await samplesOfMessages() : undefined,
    now: Date.now(),
  };
}
