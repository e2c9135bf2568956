import type { Replay } from "../contract/engine.ts";
import type { InputItem, Item } from "../items/registry.ts";
import type { TurnAddress } from "../protocol/ids.ts";

/** All that a turn knows before its model speaks. */
export interface Past {
  /** Items of earlier turns, oldest first. */
  history: Item[];
  /** The raw messages behind them. */
  replays: Replay[];
  /** The turn's own input, references resolved. */
  input: Item[];
}

/** A past that was read. */
export interface ReadPast extends Past {
  /** The length of all that was read for it, as JSON, in UTF-16 units. */
  length: number;
}

/** Where the past of a turn can be read: the homes of its tenant, or whoever else keeps turns. */
export interface PastSource {
  /**
   * The turn at `previous` with all before it, and `input` with what it refers to. Throws the 400s of what is not
   * there: another tenant's, deleted and never stored ones look alike.
   */
  past(input: readonly InputItem[], previous: TurnAddress | null): Promise<ReadPast>;
}
