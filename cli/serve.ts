import { resolve } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { TextVariables } from "../src/config/index.ts";
import { checkAddress, isLoopback, ownUrl } from "./addresses.ts";
import { checkKind } from "./cluster.ts";
import { watchConfigFile } from "./config-file.ts";
import { readChangedFile, readConfiguration } from "./configuration.ts";
import { type DataFolder, openDataFolder } from "./data-folder.ts";
import { backendOf, type Environment, keySourcesOf, sealingOf } from "./environment.ts";
import { version, workerdVersion } from "./installation.ts";
import { ownLine } from "./log-lines.ts";
import { EXIT, Refusal } from "./refusal.ts";
import type { ServeSettings } from "./serve-settings.ts";
import { untilStopped } from "./signals.ts";
import { startWorker } from "./worker-process.ts";

/**
 * `serve`: the Worker on plain workerd, for others than its developer. Resolves when it has been stopped and all requests
 * have ended, or their time was up. Throws a Refusal where it does not start, and where the Worker's process dies.
 */
export async function serve(environment: Environment): Promise<void> {
  const { settings, variables, all, warnings, ...read } = readConfiguration(environment);
  let { file } = read;
  const { host, port, keyPair, stateDirectory, leastFree, stopTimeoutMs, logFormat, cluster } = settings;
  const say = (line: string) => console.log(line);
  // That nobody reads the log any more is no reason to end.
  process.stdout.on("error", () => {});
  const tell = (level: "info" | "warn", message: string, fields?: object) =>
    say(ownLine(level, message, logFormat, fields));
  for (const warning of warnings) tell("warn", warning);

  const stopping = untilStopped();
  const folder = await openDataFolder(stateDirectory);
  try {
    checkKind(folder.path, cluster !== undefined);
    await checkAddress(host, port);
    const startOn = (onPort: number) =>
      startWorker({
        ...{ host, port: onPort, keyPair, leastFree, variables, file, environment, say },
        storage: folder.path,
        // The first half is for turns that run beside their clients; and it has to have ended before it is killed.
        cluster: cluster && { ...cluster, stopTimeoutMs: Math.floor(stopTimeoutMs * 0.45) },
        format: logFormat,
        signal: stopping.signal,
      });
    let worker = await startOn(port);
    const url = ownUrl(keyPair ? "https" : "http", host, worker.port);
    if (logFormat === "text") say(banner(url, settings, all, folder));
    else {
      const kept = { data: folder.path, ...(cluster && { cluster: cluster.bucket }) };
      tell("info", "started", { url: `${url}/v1`, version, workerd: workerdVersion, ...kept });
    }

    const reload = async () => {
      const changed = readChangedFile(environment, variables);
      const mistakes =
        changed.mistakes.length > 0 ? changed.mistakes : changed.placed(await worker.configure(changed.file));
      if (mistakes.length > 0) {
        const faults = mistakes.map((mistake) => `  ${mistake}`).join("\n");
        tell("warn", `The configuration's file is wrong, and what was in force stays so:\n${faults}`, { mistakes });
        return;
      }
      ({ file } = changed);
      tell("info", "The configuration's file has changed, and is in force.");
      const asBefore = isDeepStrictEqual(changed.settings, settings);
      if (!asBefore)
        tell(
          "warn",
          "What it says of the process itself (host, port, certificates and so on) holds from the next start on.",
        );
    };
    const { CONFIG_FILE: path } = environment;
    const onChange = () =>
      reload().catch((error: unknown) =>
        tell("warn", `The configuration's file could not be put in force (${error}).`),
      );
    using _watching = path ? watchConfigFile(resolve(path), onChange) : undefined;

    while ((await Promise.race([worker.ended.then(() => "ended" as const), stopping.first])) === "ended") {
      if (!worker.hasHung()) throw new Refusal(EXIT.failed, "The Worker's process has ended.");
      tell("warn", "The Worker's process did not answer any more, and was killed. It starts again.");
      worker = await startOn(worker.port);
    }
    tell("info", `Stopping: ${stopTimeoutMs / 1000} s for requests to end.`);
    // Whoever says it twice does not want to wait.
    const stopped = worker.stop(stopTimeoutMs);
    const last = worker;
    void stopping.second.then(() => last.stop(0));
    const isWhole = await stopped;
    if (isWhole) tell("info", "Stopped.");
    else tell("warn", "Stopped. What had not ended was cut off; runs in the background go on at the next start.");
  } catch (error) {
    // Told to stop while it started.
    if (!stopping.signal.aborted) throw error;
  } finally {
    folder.close();
  }
}

function banner(url: string, settings: ServeSettings, variables: TextVariables, folder: DataFolder): string {
  const sources = keySourcesOf(variables);
  const keys = sources
    ? `${sources}.`
    : `none (ALLOW_ANONYMOUS). Only programs of this machine are served${isLoopback(settings.host) ? "" : ", although it listens on other addresses"}.`;
  const authorization = sources ? "-H 'Authorization: Bearer YOUR_KEY' " : "";
  return `
responses-edge ${version} listens on ${url}/v1${settings.host === "0.0.0.0" || settings.host === "::" ? ", and on every other address" : ""}

  Backend: ${backendOf(variables)}
  Keys:    ${keys}
  Sealed:  ${sealingOf(variables)}
  Data:    ${settings.cluster ? `${settings.cluster.bucket}, in a cluster (experimental); its cache: ` : ""}${folder.path}

  curl ${url}/v1/responses ${authorization}-H 'Content-Type: application/json' -d '{"input":"Hello!"}'
`;
}
