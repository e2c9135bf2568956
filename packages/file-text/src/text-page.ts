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

/** The text of a page that has none. */
export const NO_TEXT = "[This page has no text: it is an image.]";

/** Tells whether a page's text only says that it has none. */
export function isWithoutText(text: string): boolean {
  return text === NO_TEXT;
}
