/** The part of `dist/pdfjs.js` that is used here. */
declare module "*/dist/pdfjs.js" {
  interface TextChunk {
    items: ({ str: string; hasEOL: boolean } | { type: string })[];
  }

  interface Page {
    streamTextContent(): ReadableStream<TextChunk>;
    cleanup(): boolean;
  }

  interface PdfDocument {
    readonly numPages: number;
    getPage(number: number): Promise<Page>;
  }

  /** The rest of the present file's budget, and a function that its reader awaits now and then. */
  export const budget: { bytes: number; tokens: number; giveWay: () => Promise<void> | undefined };

  export function getDocument(options: {
    data: Uint8Array;
    disableFontFace: boolean;
    useSystemFonts: boolean;
    isEvalSupported: boolean;
    useWasm: boolean;
    verbosity: number;
  }): { promise: Promise<PdfDocument>; destroy(): Promise<void> };
}
