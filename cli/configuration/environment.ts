import { readFileSync } from "node:fs";
import {
  ConfigError,
  loadConfig,
  misspeltVariables,
  type TextVariables,
  VARIABLE_NAMES,
} from "../../src/config/index.ts";
import { openFilesLimit, turnsWithin } from "../serve/open-files.ts";
import { EXIT, Refusal, systemCode } from "../serve/refusal.ts";

/**
 * The environment as configuration: the Worker's variables, each also as a file (`API_KEYS_FILE`) for mounted secrets.
 */

export type Environment = Readonly<Record<string, string | undefined>>;

/** The default of a process. The Worker's own default is for an isolate of 128 MB; a process has more memory. */
const MAX_OPEN_TURNS = 4000;

/** The maximum of one entry of a process's environment (Linux: MAX_ARG_STRLEN), including its name. */
const MAX_VARIABLE_BYTES = 128 * 1024 - 1;

/**
 * The suffix of variables that name a file with the value. The line break at the file's end is not part of the value.
 */
const FILE = "_FILE";

/** The value of a variable, from the environment or its file; undefined if it is unset or empty. Records errors. */
export function readVariable(name: string, environment: Environment, mistakes: string[]): string | undefined {
  const value = environment[name] || undefined;
  const file = environment[name + FILE];
  if (!file) return value;
  if (value !== undefined) {
    mistakes.push(`${name}${FILE}: expected without ${name}`);
    return value;
  }
  try {
    return readFileSync(file, "utf8").replace(/\r?\n$/, "") || undefined;
  } catch (error) {
    mistakes.push(`${name}${FILE}: the file cannot be read (${systemCode(error)})`);
    return undefined;
  }
}

/**
 * The Worker's variables, with the defaults of a process that is alone, or one of several workers. Adds errors of their
 * sources to `mistakes`.
 */
export function workerVariables(environment: Environment, mistakes: string[], workers = 1): TextVariables {
  const variables: TextVariables = {};
  for (const name of VARIABLE_NAMES) {
    const value = readVariable(name, environment, mistakes);
    if (value === undefined) continue;
    if (Buffer.byteLength(value) + name.length >= MAX_VARIABLE_BYTES) {
      mistakes.push(`${name}: expected at most ${MAX_VARIABLE_BYTES} bytes`);
      continue;
    }
    variables[name] = value;
  }
  const turns = Math.min(Math.ceil(MAX_OPEN_TURNS / workers), turnsWithin(openFilesLimit()));
  variables.MAX_OPEN_TURNS ??= String(turns);
  variables.RESPONSE_INDEX ??= "true";
  // The cheaper transport to a server near by (docs/operations.md).
  if (variables.VLLM_BASE_URL?.startsWith("http://")) variables.VLLM_TRANSPORT ??= "mixed";
  return variables;
}

/** The files that the values of variables are read from. */
export function variableFiles(environment: Environment): string[] {
  return VARIABLE_NAMES.flatMap((name) => environment[name + FILE] || []);
}

/**
 * A warning for each unknown variable whose name is like a known one. `others` are the variables that this program
 * reads itself.
 */
export function warningsOf(environment: Environment, others: readonly string[]): string[] {
  const files = new Set(VARIABLE_NAMES.map((name) => name + FILE));
  const names = Object.keys(environment).filter((name) => !others.includes(name) && !files.has(name));
  return misspeltVariables(names).map(
    ([name, meant]) => `Warning: the variable ${name} is unknown. Do you mean ${meant}?`,
  );
}

/** The errors in variables; empty if there are none. With an error the Worker would refuse every request. */
export function mistakesOf(variables: TextVariables): readonly string[] {
  try {
    loadConfig(variables);
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.mistakes;
  }
}

/** Throws a Refusal with all errors. `placed` adds the lines of the file to them. */
export function checkVariables(
  variables: TextVariables,
  mistakes: readonly string[],
  placed = (found: readonly string[]) => found,
): void {
  const known = new Set(mistakes.map((mistake) => mistake.split(":", 1)[0]));
  const found = mistakesOf(variables).filter((mistake) => !known.has(`${mistake.split(":", 1)[0]}${FILE}`));
  refuseMistakes(placed([...mistakes, ...found]));
}

/** Throws a Refusal with mistakes, if there are any. */
export function refuseMistakes(mistakes: readonly string[]): void {
  if (mistakes.length === 0) return;
  const lines = mistakes.map((mistake) => `  ${mistake}`);
  throw new Refusal(EXIT.configuration, "The configuration has errors:", ...lines);
}
