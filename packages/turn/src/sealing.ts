import type { Item } from "@responses-edge/responses-api/items/registry";

/**
 * Some content leaves the server only sealed: `encrypted_content` of reasoning and of compaction items. A client keeps it and
 * sends it back; it can neither read nor change it.
 */

/** The purpose of a blob: one of another purpose cannot be opened. */
export type SealPurpose = "reasoning" | "compaction";

/**
 * Why a blob cannot be opened, in the words of OpenAI's `input_transformations`: it was sealed for another tenant, or
 * changed (`organization_mismatch`); for another model of the tenant's (`model_mismatch`); or this server has not made it,
 * or has its key no more (`unreadable`).
 */
type SealFault = "organization_mismatch" | "model_mismatch" | "unreadable";

export type Opened = { payload: unknown; reason?: undefined } | { reason: SealFault };

/** Seals for one tenant and one model. Both methods are synchronous, and take time linear in what they are given. */
export interface Sealer {
  /** `payload` is JSON, as JavaScript has it. Gives the text of `encrypted_content`. */
  seal(purpose: SealPurpose, payload: unknown): string;
  /** Never throws, whatever the text. */
  open(purpose: SealPurpose, blob: string): Opened;
}

/** The content of a compaction item (docs/compaction.md): all that is left of what came before it. */
export interface CompactionContent {
  /** Items that stand before the summary: instructions, the user's messages, lists of tools. */
  before: Item[];
  /** The model's summary of all else. Empty where nothing is left out. */
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
