/** The characters of a line that show whether it is a fence of code. */
const FENCE_LENGTH = 3;

/** A line of code without fences begins with so much white space, in Markdown. */
const CODE_INDENT = 4;

/** The end of a growing text: whether it stands in code, and at the beginning of a line. Text is examined once. */
export class TextPlace {
  /** The text that has not been examined. */
  #recent = "";
  #isInFence = false;
  /** The beginning of the unfinished line, without the white space before it. */
  #lineHead = "";
  #indent = 0;
  #ticks = 0;

  add(text: string): void {
    this.#recent += text;
  }

  /** Begins another text. */
  reset(): void {
    this.#recent = "";
    this.#isInFence = false;
    this.#beginLine();
  }

  look(): { isInCode: boolean; isLineStart: boolean } {
    const lines = this.#recent.split("\n");
    this.#recent = "";
    for (const [index, line] of lines.entries()) {
      if (index > 0) {
        if (/^(?:```|~~~)/.test(this.#lineHead)) this.#isInFence = !this.#isInFence;
        this.#beginLine();
      }
      if (this.#lineHead === "") this.#indent += line.length - line.trimStart().length;
      if (this.#lineHead.length < FENCE_LENGTH) {
        this.#lineHead = (this.#lineHead + line).trimStart().slice(0, FENCE_LENGTH);
      }
      this.#ticks += line.split("`").length - 1;
    }
    const isLineStart = this.#lineHead === "";
    const isIndented = isLineStart && this.#indent >= CODE_INDENT;
    return { isInCode: this.#isInFence || this.#ticks % 2 === 1 || isIndented, isLineStart };
  }

  #beginLine(): void {
    this.#lineHead = "";
    this.#indent = 0;
    this.#ticks = 0;
  }
}
