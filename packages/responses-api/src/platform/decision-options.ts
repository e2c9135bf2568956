import type { Answer, Question } from "./decisions.ts";

/** Questions of a decision as options with letters, and the probabilities of letters as answers. Pure. */

/**
 * The maximum of options of one question. Model servers list twenty alternatives of a token, and a letter has several
 * spellings.
 */
export const MAX_OPTIONS = 10;

const LETTERS = "ABCDEFGHIJ";

/** The texts of a question's options, in their order. */
export function optionsOf(question: Question): string[] {
  switch (question.type) {
    case "predicate":
      return ["True", "False"];
    case "choice":
      return question.choices.map(({ value, description }) => described(String(value), description));
    case "score":
      return question.levels.map(({ label, description }) => described(label, description));
  }
}

function described(label: string, description: string | undefined): string {
  return description ? `${label}: ${description}` : label;
}

/** The text that follows the question's instructions in the prompt. At most `MAX_OPTIONS` options. */
export function optionList(options: readonly string[]): string {
  const lines = options.map((option, index) => `${LETTERS[index]}. ${option}`);
  return `${lines.join("\n")}\n\nAnswer with the letter of the option that is right for the input above, and with nothing else.`;
}

/** The texts between which a model's grammar lets it choose. */
export function lettersOf(count: number): string[] {
  return [...LETTERS.slice(0, count)].flatMap((letter) => [letter, ` ${letter}`]);
}

/** A token that a model has written, and the alternatives that it had, with their log probabilities. */
interface ListedToken {
  token: string;
  logprob: number;
  top_logprobs: readonly { token: string; logprob: number }[];
}

/**
 * The probabilities of this many options, which add up to one, from the log probabilities of a token and its alternatives. Undefined if no letter
 * is among them. A letter that is not listed has the probability 0.
 */
export function probabilitiesOf(token: ListedToken, count: number): number[] | undefined {
  const masses = Array.from({ length: count }, () => 0);
  const seen = new Set<string>();
  for (const { token: text, logprob } of [...token.top_logprobs, token]) {
    const index = text.trim().length === 1 ? LETTERS.indexOf(text.trim()) : -1;
    if (index < 0 || index >= count || seen.has(text)) continue;
    seen.add(text);
    masses[index] = (masses[index] ?? 0) + Math.exp(logprob);
  }
  const sum = masses.reduce((all, mass) => all + mass, 0);
  return sum > 0 ? masses.map((mass) => mass / sum) : undefined;
}

/**
 * Probabilities of options that were asked in groups, and whose best ones were asked together. The odds of two options are taken to be the same
 * whatever stands beside them (Luce's choice axiom): an option's weight is its group's best one's, times its odds against that in its group.
 */
export function joined(groups: readonly (readonly number[])[], best: readonly number[]): number[] {
  const weights = groups.flatMap((group, index) => {
    const top = Math.max(...group);
    return group.map((probability) => ((best[index] ?? 0) * probability) / top);
  });
  const sum = weights.reduce((all, weight) => all + weight, 0);
  return weights.map((weight) => weight / sum);
}

/** The answer to a question: a refusal where no option was chosen. `score` is the mean of the levels' positions; the lowest is 0. */
export function answerOf(question: Question, probabilities: readonly number[] | undefined): Answer {
  const name = question.name ?? null;
  if (!probabilities) return { type: "refusal", name };
  const confidence = Math.max(...probabilities);
  switch (question.type) {
    case "predicate":
      return { type: "predicate", name, probability: probabilities[0] ?? 0 };
    case "choice": {
      const listed = question.choices.map(({ value }, index) => ({ value, probability: probabilities[index] ?? 0 }));
      const choice = question.choices[probabilities.indexOf(confidence)]?.value ?? "";
      return { type: "choice", name, choice, confidence, probabilities: listed };
    }
    case "score": {
      const listed = question.levels.map(({ label }, value) => ({
        label,
        value,
        probability: probabilities[value] ?? 0,
      }));
      const score = listed.reduce((sum, { value, probability }) => sum + value * probability, 0);
      return { type: "score", name, score, confidence, probabilities: listed };
    }
  }
}
