import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { TextVariables } from "../../src/config/index.ts";
import { checkKind } from "../cluster/cluster.ts";
import { backendOf, keySourcesOf, sealingOf } from "../configuration/banner.ts";
import { changesBetween, lossOf } from "../configuration/changes.ts";
import { Discovery } from "../configuration/discovery.ts";
import type { Environment } from "../configuration/environment.ts";
import { inFile } from "../configuration/file-places.ts";
import type { ModelServerLine } from "../configuration/model-servers.ts";
import type { ServeSettings } from "../configuration/serve-settings.ts";
import { watchFiles } from "../configuration/watched-files.ts";
import { takeCommands } from "../reload/control-socket.ts";
import { installedFiles } from "../reload/replacement.ts";
import { isLoopback, ownUrl } from "./addresses.ts";
import { BoundedProcesses } from "./bounded-processes.ts";
import { type DataFolder, openDataFolder } from "./data-folder.ts";
import type { LauncherState } from "./free-disk.ts";
import { endHelper, modelServerLines, readChangedFile, readConfiguration } from "./helper-process.ts";
import { checkPlatform, version, workerdVersion } from "./installation.ts";
import { listenOn } from "./listening.ts";
import { ownLine } from "./log-lines.ts";
import { keepHeapSmall, releaseGarbage } from "./own-memory.ts";
import { serviceManager } from "./service-manager.ts";
import { untilStopped } from "./signals.ts";
import { Workers } from "./workers.ts";

/** The beginning of the line about a file that took effect, which names its changes. */
const APPLIED = "The configuration file has changed, and was applied";

/** How long a file without most of its keys or servers must stay so before it takes effect. Milliseconds. */
const SECOND_LOOK_MS = 10_000;

/**
 * `serve`: the Worker on plain workerd, for production. Resolves when it was stopped and all requests have ended, or
 * timed out. Throws a Refusal if it does not start, or the Worker's process dies.
 */
export async function serve(environment: Environment): Promise<void> {
  checkPlatform();
  keepHeapSmall();
  // A closed terminal ends its programs; elsewhere the signal requests a reload, also while the process starts.
  const stopping = untilStopped(process.stdin.isTTY ? ["SIGHUP"] : []);
  let wantsReload = false;
  let onHangUp = () => {
    wantsReload = true;
  };
  if (!process.stdin.isTTY) process.on("SIGHUP", () => onHangUp());
  using _helper = { [Symbol.dispose]: endHelper };
  const configuration = await readConfiguration(environment);
  const { settings, variables, all, files, warnings } = configuration;
  let { file, all: applied, written } = configuration;
  const { host, port, keyPair, stateDirectory, stopTimeoutMs, logFormat, cluster } = settings;
  const say = (line: string) => console.log(line);
  // The server goes on when the reader of its log has gone.
  process.stdout.on("error", () => {});
  const tell = (level: "info" | "warn" | "error", message: string, fields?: object) =>
    say(ownLine(level, message, logFormat, fields));
  for (const warning of warnings) tell("warn", warning);

  const { workers: count } = settings;
  const folder = await openDataFolder(stateDirectory, { workers: count });
  if (folder.moved) {
    const moved = `The number of workers has changed (${count}): ${folder.moved} objects have moved to another worker.`;
    tell("info", moved, { workers: count, moved: folder.moved });
  }
  for (const { list, quarantined, alarms, nameless } of folder.rebuilt) {
    const lost =
      nameless.length > 0 ? ` The alarms of ${nameless.length} objects are lost: their names were not found.` : "";
    const fields = { event: "alarms_rebuilt", file: list, quarantined, alarms, lost: nameless.length };
    tell(
      "warn",
      `${list} was damaged, and was rebuilt from ${alarms} objects' alarms; the damaged list is in ${quarantined}.${lost}`,
      fields,
    );
  }
  try {
    checkKind(folder.path, cluster !== undefined);
    await using listening = await listenOn(host, port, count);
    const { signal } = stopping;
    using discovery = new Discovery(() => void putInForce(file).then(tellDiscovered, () => {}));
    await using boundedProcesses = await BoundedProcesses.start({ format: logFormat, say });
    const discovered = { ...configuration, file: await discovery.expand(variables, file) };
    const state: LauncherState = { folder: folder.path, isFileRefused: environment.CONFIG_FILE ? false : undefined };
    const shared = { environment, folder, listening, boundedProcesses, say, signal, state };
    await using workers = await Workers.start(shared, discovered);
    /**
     * Applies the file's variables, with the present addresses of model servers. Gives the errors of the whole
     * configuration.
     */
    const putInForce = async (said: TextVariables | undefined) =>
      workers.configure((await discovery.expand(variables, said)) ?? {});
    const tellDiscovered = (mistakes: readonly string[]) => {
      if (mistakes.length > 0) tell("warn", "The discovered model servers could not be applied.", { mistakes });
    };
    const tellChanges = (message: string, changed: readonly string[]) => {
      if (changed.length > 0) tell("info", `${message}: ${changed.join("; ")}.`, { changed });
    };
    using manager = serviceManager(environment);
    let second: NodeJS.Timeout | undefined;
    const cancelSecondLook = () => {
      const wasDue = second !== undefined;
      clearTimeout(second);
      second = undefined;
      return wasDue;
    };
    using _second = { [Symbol.dispose]: () => void cancelSecondLook() };
    const reload = async (reason: string, quarantines = false) => {
      manager.reloading();
      // The new process has the file as it is.
      const hadSecondLook = cancelSecondLook();
      try {
        const fileBefore = file;
        const read = await workers.replaceWorkers(reason, quarantines);
        // A file that was applied meanwhile is newer.
        if (environment.CONFIG_FILE && file === fileBefore) {
          const before = written;
          ({ file, all: applied, written } = read);
          state.isFileRefused = false;
          tellChanges("The new process has another configuration", changesBetween(before, written));
        }
        if (discovery.isUsed) tellDiscovered(await putInForce(file));
      } catch (error) {
        const why = error instanceof Error ? error.message : error;
        if (!signal.aborted) tell("error", `No other process serves (${reason}): ${why}`);
        if (hadSecondLook) void onChange();
        throw error;
      } finally {
        manager.ready();
      }
    };
    using _control = await takeCommands(folder.path, (command) => {
      const quarantines = command === "quarantine";
      if (quarantines && !workers.hasDamage) throw new Error("The server knows no damaged object: its log names them.");
      return reload(command, quarantines);
    });
    onHangUp = () => void reload("SIGHUP").catch(() => {});
    // A certificate or a secret was renewed. While a new pair is half written, the old one is used.
    const onRenewal = () => void reload("a file of its variables").catch(() => {});
    let inForce = settings;
    /** The pair of the file, also while the hand-over to it is under way, and after one that has failed. */
    let watched = keyPair;
    let watch = watchFiles(Object.values(keyPair ?? {}), onRenewal);
    using _pair = { [Symbol.dispose]: () => watch[Symbol.dispose]() };
    const reread = async (isSecond = false) => {
      if (signal.aborted) return;
      cancelSecondLook();
      const changed = await readChangedFile(environment, variables);
      if (signal.aborted) return;
      const loss = changed.mistakes.length > 0 || isSecond ? undefined : lossOf(applied, changed.all);
      if (loss !== undefined) {
        const when = `if it stays so for ${SECOND_LOOK_MS / 1000} s, or at once by a reload`;
        tell("warn", `The configuration file no longer has ${loss}. This takes effect ${when}.`);
        second = setTimeout(onChange, SECOND_LOOK_MS, true);
        return;
      }
      const mistakes =
        changed.mistakes.length > 0 ? changed.mistakes : inFile(changed.places, await putInForce(changed.file));
      state.isFileRefused = mistakes.length > 0;
      if (mistakes.length > 0) {
        const faults = mistakes.map((mistake) => `  ${mistake}`).join("\n");
        tell("warn", `The configuration file has errors, and the configuration stays as it was:\n${faults}`, {
          mistakes,
        });
        return;
      }
      const changes = changesBetween(written, changed.written);
      ({ file, all: applied, written } = changed);
      tellChanges(APPLIED, changes.length > 0 ? changes : ["no variable has another value"]);
      const { keyPair: pair } = changed.settings;
      if (!isDeepStrictEqual(pair, watched)) {
        watch[Symbol.dispose]();
        watched = pair;
        watch = watchFiles(Object.values(pair ?? {}), onRenewal);
      }
      // A change of the process's own settings needs a new process; one of host and port, a restart.
      if (!isDeepStrictEqual(changed.settings, inForce)) await reload("the configuration's file");
      inForce = changed.settings;
    };
    const { CONFIG_FILE: path } = environment;
    const onChange = (isSecond = false) =>
      reread(isSecond).catch((error: unknown) => {
        state.isFileRefused = true;
        tell("warn", `The configuration file could not be applied (${error}).`);
      });
    using _watching = path ? watchFiles([resolve(path)], onChange) : undefined;
    using _secrets = watchFiles(files, onRenewal);
    const installed = cluster ? [] : installedFiles();
    using _installed = watchFiles(installed, () => {
      // During an installation files are missing.
      if (installed.every((file) => existsSync(file))) void reload("an upgrade of the package").catch(() => {});
    });

    const url = ownUrl(keyPair ? "https" : "http", host, workers.port);
    if (logFormat === "text") say(banner(url, settings, all, folder));
    else {
      const kept = { data: folder.path, ...(cluster && { cluster: cluster.bucket }) };
      const several = count > 1 && { workers: count };
      tell("info", "started", { url: `${url}/v1`, version, workerd: workerdVersion, ...kept, ...several });
    }

    manager.ready();
    if (wantsReload) onHangUp();
    // The start does not wait for it: a model server may take as long as it wants.
    const tellModelServers = (lines: readonly ModelServerLine[]) => {
      for (const { level, line, fields } of lines) tell(level, line, fields);
    };
    void modelServerLines(all)
      .then(tellModelServers, () => {})
      .then(releaseGarbage);

    await Promise.race([workers.failed, stopping.first]);
    manager.stopping();
    tell("info", `Stopping: ${stopTimeoutMs / 1000} s for requests to end.`);
    // A second signal ends the wait.
    const stopped = workers.stop(stopTimeoutMs);
    void stopping.second.then(() => workers.stop(0));
    const isWhole = await stopped;
    if (isWhole) tell("info", "Stopped.");
    else tell("warn", "Stopped. Unfinished requests were cut off; background runs resume at the next start.");
  } catch (error) {
    // It was told to stop during its start.
    if (!stopping.signal.aborted) throw error;
  } finally {
    folder.close();
  }
}

function banner(url: string, settings: ServeSettings, variables: TextVariables, folder: DataFolder): string {
  const sources = keySourcesOf(variables);
  const keys = sources
    ? `${sources}.`
    : `none (ALLOW_ANONYMOUS). Only programs on this machine are served${isLoopback(settings.host) ? "" : ", although it listens on other addresses"}.`;
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
