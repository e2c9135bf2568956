import type { Item } from "@responses-edge/responses-api/items/registry";

/**
 * Some content leaves the server only sealed: `encrypted_content` of reasoning and of compaction items. A client keeps
 * it and sends it back, but can neither read nor change it.
 */

/** The purpose of a blob. A blob cannot be opened for another purpose. */
export type SealPurpose = "reasoning" | "compaction";

/**
 * Why a blob cannot be opened, in the terms of OpenAI's `input_transformations`: it was sealed for another tenant, or
 * changed (`organization_mismatch`); for another model of the tenant (`model_mismatch`); or this server has not made
 * it, or no longer has its key (`unreadable`).
 */
type SealFault = "organization_mismatch" | "model_mismatch" | "unreadable";

export type Opened = { payload: unknown; reason?: undefined } | { reason: SealFault };

/** Seals for one tenant and one model. Both methods are synchronous, and take time linear in their input. */
export interface Sealer {
  /** `payload` is a JSON value. Gives the text of `encrypted_content`. */
  seal(purpose: SealPurpose, payload: unknown): string;
  /** Never throws, for any text. */
  open(purpose: SealPurpose, blob: string): Opened;
}

/** A program, as its item shows it. */
interface ShownProgram {
  call_id: string;
  code: string;
  fingerprint: string;
}

/** Makes and checks the fingerprints of one tenant's programs. */
export interface ProgramFingerprints {
  /** `startedAt`: when the program begins, in Unix milliseconds. */
  make(program: Omit<ShownProgram, "fingerprint">, startedAt: number): string;
  /**
   * When a program began. Undefined if this server has not made its fingerprint for it. `isStored`: this server has stored
   * it, perhaps before the operator has changed the keys.
   */
  startOf(program: ShownProgram, isStored: boolean): number | undefined;
}

/** The content of a compaction item (docs/reasoning.md): everything that remains of the items before it. */
export interface CompactionContent {
  /** Items before the summary: instructions, the user's messages, lists of tools. */
  before: Item[];
  /** The model's summary of everything else. Empty if nothing is left out. */
  summary: string;
  /** Items after the summary: unanswered ones. */
  after: Item[];
}

/** Why the content of a compaction item is unreadable, as the client is told. */
export interface CompactionFault {
  fault: string;
}

/** Writes and reads the `encrypted_content` of one tenant's compaction items. */
export interface CompactionCodec {
  write(content: CompactionContent): string;
  /**
   * Never throws. `isStored`: this server has stored it since it was written or checked, so that it may be from before
   * content was sealed. Takes time linear in the text.
   */
  read(text: string, isStored: boolean): CompactionContent | CompactionFault;
}
