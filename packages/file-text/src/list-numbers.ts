/** The numbers of lists, in letters and Roman digits. */

const ROMAN = [
  [1000, "m"],
  [900, "cm"],
  [500, "d"],
  [400, "cd"],
  [100, "c"],
  [90, "xc"],
  [50, "l"],
  [40, "xl"],
  [10, "x"],
  [9, "ix"],
  [5, "v"],
  [4, "iv"],
  [1, "i"],
] as const;

/** A number in a format; in digits where the format is another one, or the number is no usual one. */
export function written(number: number, format: string): string {
  const isLetter = /letter$/i.test(format);
  if (!(number >= 1 && number < 1_000) || !(isLetter || /roman$/i.test(format))) return String(number);
  let text = "";
  if (isLetter) text = String.fromCharCode(97 + ((number - 1) % 26)).repeat(Math.ceil(number / 26));
  else {
    let rest = number;
    for (const [value, sign] of ROMAN) for (; rest >= value; rest -= value) text += sign;
  }
  return format.startsWith("upper") ? text.toUpperCase() : text;
}
