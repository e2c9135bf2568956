/** The error of every checker here: all violations of one body or stream, not only the first. */
export class ConformanceError extends Error {
  readonly violations: readonly string[];

  constructor(subject: string, violations: readonly string[]) {
    super(`${subject} breaks ${violations.length} rule(s):\n${violations.map((line) => `  - ${line}`).join("\n")}`);
    this.name = "ConformanceError";
    this.violations = violations;
  }
}

/** Throws a {@link ConformanceError} when there are violations. */
export function throwIfAny(subject: string, violations: readonly string[]): void {
  if (violations.length > 0) throw new ConformanceError(subject, violations);
}

/** The violations in a thrown value. */
export function violationsIn(error: unknown): readonly string[] {
  if (error instanceof ConformanceError) return error.violations;
  return [error instanceof Error ? `${error.name}: ${error.message}` : String(error)];
}

export type JsonObject = Record<string, unknown>;

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A value for a message: one line, shortened. */
export function show(value: unknown): string {
  const text = JSON.stringify(value) ?? "undefined";
  return text.length > 120 ? `${text.slice(0, 117)}...` : text;
}

/** A rule about `Subject`; its function name is its name in messages, `check` its number in the reference (§6). */
export interface Rule<Subject> {
  readonly check: number;
  readonly run: (subject: Subject) => Iterable<string>;
}

/** The beginning of every violation of a rule: `#9 outputIndexesCountUp`. */
export function ruleLabel<Subject>(rule: Rule<Subject>): string {
  return `#${rule.check} ${rule.run.name}`;
}

export function runRules<Subject>(rules: readonly Rule<Subject>[], subject: Subject): string[] {
  return rules.flatMap((rule) => [...rule.run(subject)].map((message) => `${ruleLabel(rule)}: ${message}`));
}
