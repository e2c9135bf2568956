import { samplesOf } from "@responses-edge/engines/harmony/forked-samples";
import type { Item, OutputItem } from "@responses-edge/responses-api/items/registry";
import type { Model } from "@responses-edge/turn/contract/engine";
import type { ForkMeans } from "@responses-edge/turn/fork";
import { PLUGINS } from "../tools/plugins.ts";

/** The functions of tools and of an engine by which a branch begins. `output`: the items of the turn that it branches off. */
export function forkMeans({ engine }: Pick<Model, "engine">, output: readonly OutputItem[]): ForkMeans {
  return {
    toolOf: (item) => PLUGINS.toolOf(item),
    exchangeOf: (item, replay) => PLUGINS.exchangeOf(item as Item, replay, output as readonly Item[]),
    sampledOf: engine === "harmony" ? samplesOf : undefined,
    now: Date.now(),
  };
}
