export interface TextPage {
  /** Page, slide or sheet, from 1; null in formats without pages. */
  page: number | null;
  text: string;
  /** Not all of it could be read. Its text says so. */
  isPartial?: true;
  /**
   * Says what a picture of the page would add: something that its text lacks (`needed`), or images and drawings beside its text (`useful`).
   * Absent where it would add only looks, and in formats other than PDF.
   */
  picture?: "needed" | "useful";
}
