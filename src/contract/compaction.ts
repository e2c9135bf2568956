import type { Item } from "../items/registry.ts";

/** What a compaction item carries (docs/compaction.md): all that is left of what came before it. */
export interface CompactionContent {
  /** Items that stand before the summary: instructions, the user's messages, lists of tools. */
  before: Item[];
  /** What the model has written of all else. Empty where nothing is left out. */
  summary: string;
  /** Items that stand after it: what nobody has answered yet. */
  after: Item[];
}

/** Why the content of a compaction item cannot be read, as a client is told. */
export interface CompactionFault {
  fault: string;
}

/** Writes and reads the `encrypted_content` of one tenant's compaction items. */
export interface CompactionCodec {
  write(content: CompactionContent): string;
  /**
   * Never throws. `isStored`: this server has kept it since it was written or checked, so that it may be of a time when
   * nothing was sealed. Bounded by the length of the text.
   */
  read(text: string, isStored: boolean): CompactionContent | CompactionFault;
}
