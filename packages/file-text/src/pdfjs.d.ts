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

  interface Options {
    data: Uint8Array;
    disableFontFace: boolean;
    useSystemFonts: boolean;
    isEvalSupported: boolean;
    useWasm: boolean;
    verbosity: number;
  }

  interface Reader {
    /** The rest of the file's budget, and a function that the reader awaits now and then. */
    readonly budget: { bytes: number; tokens: number; giveWay: () => Promise<void> | undefined };
    getDocument(options: Options): { promise: Promise<PdfDocument>; destroy(): Promise<void> };
  }

  /** Makes the reader of one file: its state and its budget are no other file's. */
  export function newReader(): Reader;
}
