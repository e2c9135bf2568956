/** A list of options with letters, followed by the wish for a letter. */
const OPTIONS = /^A\. [^\n]*\nB\. .*\bletter\b/ms;

/** The answer to a user's text: the letter of the first option if it asks for one, as `/v1/decisions` does, else the text. */
export function echoOf(text: string): string {
  if (text === "") return "Hello.";
  return OPTIONS.test(text) ? "Answer: A" : `You said: ${text}`;
}
