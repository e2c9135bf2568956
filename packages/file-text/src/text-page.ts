export interface TextPage {
  /** Page, slide or sheet, from 1; null in formats without pages. */
  page: number | null;
  text: string;
}
