import { loadConfig, type TextVariables } from "../src/config/index.ts";
import { faultOf } from "./certificate.ts";
import { checkVariables, type Environment, keySourcesOf, warningsOf, workerVariables } from "./environment.ts";
import { fewFiles, openFilesLimit } from "./open-files.ts";
import { systemCode } from "./refusal.ts";
import { readServeSettings, SERVE_VARIABLES, type ServeSettings } from "./serve-settings.ts";

/** The configuration of `serve`, as its environment says it. */
export interface Configuration {
  settings: ServeSettings;
  variables: TextVariables;
  /** What may be a mistake, a line each. */
  warnings: string[];
}

/** Reads the whole configuration. Throws a Refusal that names every mistake. */
export function readConfiguration(environment: Environment): Configuration {
  const mistakes: string[] = [];
  const settings = readServeSettings(environment, mistakes);
  const variables = workerVariables(environment, mistakes);
  checkKeySources(variables, mistakes);
  const fault = settings.keyPair && faultOf(settings.keyPair, Date.now());
  if (fault) mistakes.push(fault);
  checkVariables(variables, mistakes);
  const few = fewFiles(openFilesLimit());
  return { settings, variables, warnings: [...warningsOf(environment, SERVE_VARIABLES), ...(few ? [few] : [])] };
}

/** Nobody serves everybody by forgetting a variable. */
function checkKeySources(variables: TextVariables, mistakes: string[]): void {
  if (keySourcesOf(variables) !== "" || variables.ALLOW_ANONYMOUS === "true") return;
  const how = "`responses-edge create-key TENANT` makes a key and its entry";
  mistakes.push(`API_KEYS: needed, or ADMIN_KEY, or JWT_ISSUER (${how}); ALLOW_ANONYMOUS=true does without keys`);
}

/** A model server that takes longer to answer is told of. Milliseconds. */
const TIMEOUT_MS = 5_000;

/**
 * `check`: says what is wrong with the configuration, and which model servers answer, without serving. Throws a Refusal as
 * `readConfiguration` does; a model server that is away is no mistake.
 */
export async function check(environment: Environment): Promise<void> {
  const { variables, warnings } = readConfiguration(environment);
  for (const warning of warnings) console.log(warning);
  const { modelServers } = loadConfig(variables);
  const told = await Promise.all(
    modelServers.map(async ({ name, baseUrl, apiKey }) => `${name}: ${await answerOf(baseUrl, apiKey)}`),
  );
  for (const line of told) console.log(line);
  console.log("The configuration is right.");
}

/** What a model server says to who asks for its models, in words. */
async function answerOf(baseUrl: string, apiKey: string | undefined): Promise<string> {
  const headers: Record<string, string> = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
  try {
    const answer = await fetch(`${baseUrl}/models`, { headers, signal: AbortSignal.timeout(TIMEOUT_MS) });
    await answer.body?.cancel();
    return answer.ok ? "answers" : `answers with status ${answer.status}`;
  } catch (error) {
    const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
    return `does not answer (${systemCode(cause)})`;
  }
}
