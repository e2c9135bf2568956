/** The part of `dist/pdfjs.js` that is used here. */
declare module "*/dist/pdfjs.js" {
  interface PlacedItem {
    str: string;
    transform: number[];
    width: number;
    height: number;
    dir: string;
  }

  interface TextChunk {
    /** Texts at their places. Those up to `endActualText` stand for the text of `actualText`. */
    items: (PlacedItem | { type: "actualText"; text: string } | { type: "endActualText" } | { type: "other" })[];
  }

  /** A field of a form, a note or a link on a page. */
  interface Annotation {
    subtype: string;
    rect: number[];
    fieldName?: string;
    fieldType?: string | null;
    fieldValue?: string | string[] | null;
    checkBox?: boolean;
    radioButton?: boolean;
    /** The value of the field when this box, or this radio button, is the marked one. */
    exportValue?: string | null;
    buttonValue?: string | null;
    /** The choices of a list. */
    options?: { exportValue: string; displayValue: string }[];
    /** The words of its appearance. */
    textContent?: string[];
    annotationFlags?: number;
    contentsObj?: { str: string };
    url?: string;
  }

  /** Gives data that pdf.js has in files. */
  interface BinaryDataFactory {
    fetch(file: { kind: string; filename: string }): Promise<Uint8Array>;
  }

  interface Page {
    /** Left, bottom, right and top. Points. */
    readonly view: readonly number[];
    /** Degrees. */
    readonly rotate: number;
    streamTextContent(): ReadableStream<TextChunk>;
    getAnnotations(): Promise<Annotation[]>;
    cleanup(): boolean;
  }

  interface PdfDocument {
    readonly numPages: number;
    getPage(number: number): Promise<Page>;
  }

  interface Options {
    data: Uint8Array;
    BinaryDataFactory: new () => BinaryDataFactory;
    cMapUrl: string;
    cMapPacked: boolean;
    useWorkerFetch: boolean;
    disableFontFace: boolean;
    useSystemFonts: boolean;
    isEvalSupported: boolean;
    useWasm: boolean;
    verbosity: number;
  }

  interface Reader {
    /**
     * The rest of the file's budget, the numbers of images, of drawn lines and of unreadable parts that it has passed over, and a function that the reader
     * awaits now and then.
     */
    readonly budget: {
      bytes: number;
      tokens: number;
      images: number;
      strokes: number;
      faults: number;
      giveWay: () => Promise<void> | undefined;
    };
    getDocument(options: Options): { promise: Promise<PdfDocument>; destroy(): Promise<void> };
  }

  /** Makes the reader of one file: its state and its budget are no other file's. */
  export function newReader(): Reader;
}
