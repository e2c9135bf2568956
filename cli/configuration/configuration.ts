import type { TextVariables } from "../../src/config/index.ts";
import { MAKES_KEYS } from "../../src/config/keys.ts";
import { withFile } from "../../src/config/raw-servers.ts";
import { faultOf } from "../serve/certificate.ts";
import { fewFiles, openFilesLimit } from "../serve/open-files.ts";
import { keySourcesOf } from "./banner.ts";
import { workerPart } from "./config-file.ts";
import {
  checkVariables,
  type Environment,
  mistakesOf,
  refuseMistakes,
  variableFiles,
  warningsOf,
  workerVariables,
} from "./environment.ts";
import { inFile } from "./file-places.ts";
import { type FoundServer, findModelServers } from "./model-servers.ts";
import { configFileOf, readServeSettings, SERVE_VARIABLES, type ServeSettings } from "./serve-settings.ts";
import { parserAdvice } from "./server-parsers.ts";

/** The configuration of `serve`, from its environment and its file. */
export interface Configuration {
  settings: ServeSettings;
  /** The variables of the environment. */
  variables: TextVariables;
  /** The variables of the file; undefined without one. */
  file: TextVariables | undefined;
  /** All variables that the file itself has, those of the process included. */
  written: Readonly<Record<string, string>>;
  /** The variables of both. */
  all: TextVariables;
  /** The files that values of variables were read from. */
  files: string[];
  /** Settings that may be errors, one per line. */
  warnings: string[];
}

/** Reads the whole configuration. Throws a Refusal that names every error. */
export function readConfiguration(environment: Environment): Configuration {
  const mistakes: string[] = [];
  const written = configFileOf(environment);
  // The variables of an unreadable file are unknown.
  if (written?.isUnreadable) refuseMistakes(written.mistakes);
  const settings = readServeSettings(environment, mistakes, written);
  const variables = workerVariables(environment, mistakes, settings.workers);
  const file = written && workerPart(written.variables);
  const all = file ? withFile(variables, file) : variables;
  mistakes.push(...(written?.mistakes ?? []), ...keySourceMistakes(all));
  const fault = settings.keyPair && faultOf(settings.keyPair, Date.now());
  if (fault) mistakes.push(fault);
  checkVariables(all, mistakes, (found) => (written ? inFile(written, found) : found));
  const few = fewFiles(openFilesLimit());
  return {
    settings,
    variables,
    file,
    written: written?.variables ?? {},
    all,
    files: variableFiles(environment),
    warnings: [...warningsOf(environment, SERVE_VARIABLES), ...(few ? [few] : [])],
  };
}

/**
 * Reads the file again, as `readConfiguration` does. `mistakes` has all errors of the whole; then the file has no
 * effect.
 */
export function readChangedFile(environment: Environment, variables: TextVariables) {
  const written = configFileOf(environment);
  if (!written) throw new TypeError("There is no file.");
  const file = workerPart(written.variables);
  const all = withFile(variables, file);
  const settingsMistakes: string[] = [];
  const settings = readServeSettings(environment, settingsMistakes, written);
  const mistakes = written.isUnreadable
    ? written.mistakes
    : inFile(written, [...written.mistakes, ...settingsMistakes, ...keySourceMistakes(all), ...mistakesOf(all)]);
  return {
    file,
    written: written.variables,
    all,
    mistakes,
    settings,
    places: { path: written.path, lines: written.lines },
  };
}

/**
 * The mistake of an environment without a source of keys: a forgotten variable must not open the server to everybody.
 */
function keySourceMistakes(variables: TextVariables): string[] {
  if (keySourcesOf(variables) !== "" || variables.ALLOW_ANONYMOUS === "true") return [];
  const how = `${MAKES_KEYS} makes a key and its entry`;
  return [`API_KEYS: needed, or ADMIN_KEY, or JWT_ISSUER (${how}); ALLOW_ANONYMOUS=true serves without keys`];
}

/**
 * `check`: prints the errors of the configuration, and how the model servers answer, without serving. Throws a Refusal
 * as `readConfiguration` does, and if every request would be a 503, because no server separates tenants. A model server
 * that does not answer is no error: it may start later.
 */
export async function check(environment: Environment): Promise<void> {
  const { all, warnings } = readConfiguration(environment);
  for (const warning of warnings) console.log(warning);
  const found = await findModelServers(all);
  if (found.every(({ fault }) => fault === "refused")) refuseMistakes(found.map(inWords));
  for (const server of found) console.log(inWords(server));
  const unusable = found.filter(({ fault }) => fault !== undefined).map(({ name }) => name);
  for (const line of await parserAdvice(all, found)) console.log(line);
  const verdict = `has no errors in itself, but not every model server can be used: ${unusable.join(", ")}.`;
  console.log(`The configuration ${unusable.length > 0 ? verdict : "is right."}`);
}

function inWords({ name, answer }: FoundServer): string {
  return `${name}: ${answer}`;
}
