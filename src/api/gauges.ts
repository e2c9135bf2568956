import type { Gauge, GaugeReading } from "@responses-edge/otlp";
import { serverStates } from "../assembly/model-server.ts";
import type { Config } from "../config/index.ts";
import { directoryState } from "../store/deployment/keys/directory-state.ts";
import { permitsTaken, turnsUnderWay, workUnderWay } from "../store/limits/permits.ts";
import { damagedObjects } from "../store/objects/damage.ts";
import { type FileBindings, filesInUse } from "../store/objects/open-objects.ts";
import { pendingBatches, pendingDeliveries } from "../store/objects/pending-work.ts";
import { processState } from "../store/objects/process-state.ts";
import { ingestingStores } from "../store/tenant/vector-stores/ingesting-stores.ts";
import {
  BACKUP_TIME,
  BATCHES,
  BUILD,
  CERTIFICATE_END,
  DISK_FREE,
  DISK_LOW,
  FILE_REFUSED,
  FILES_OPEN,
  INGESTION,
  KEYS_UP,
  MEMORY,
  OBJECTS_DAMAGED,
  OBJECTS_OPEN,
  PERMITS,
  UPSTREAM_DRAINING,
  UPSTREAM_EJECTED,
  UPSTREAM_IN_FLIGHT,
  UPSTREAM_LOAD,
  UPSTREAM_UP,
  UPSTREAM_WAITING,
  WEBHOOKS_WAITING,
  WORK,
} from "../telemetry/gauges.ts";
import { SCOPE } from "../telemetry/instruments.ts";

const STATE = "responses_edge.state";

/** Reads the gauges of this process at this moment. An unknown gauge has no value. */
export async function readGauges(config: Config, files: FileBindings): Promise<GaugeReading[]> {
  const states = serverStates(config, turnsUnderWay());
  const ofServers = (gauge: Gauge, of: (state: (typeof states)[number]) => number | boolean | undefined) => {
    const values = states.flatMap((state) => {
      const value = of(state);
      return value === undefined ? [] : [[{ "responses_edge.server": state.name }, Number(value)] as const];
    });
    return [gauge, values] as const;
  };
  const open = await filesInUse(files);
  const disk = processState.disk;
  const inUse = (gauge: Gauge, used: number | null | undefined, limit: number | null | undefined): GaugeReading => [
    gauge,
    [
      ...(used == null ? [] : [[{ [STATE]: "used" }, used] as const]),
      ...(limit == null ? [] : [[{ [STATE]: "limit" }, limit] as const]),
    ],
  ];
  const { freeDisk, memory, certificateEnd, backupAt, isFileRefused } = processState.measures;
  const ofProcess = (gauge: Gauge, value: number | undefined): GaugeReading => [
    gauge,
    value === undefined ? [] : [[{}, value]],
  ];
  const keys = directoryState();
  return [
    [WORK, [...workUnderWay()].map(([kind, count]) => [{ "responses_edge.kind": kind }, count] as const)],
    inUse(PERMITS, permitsTaken(), config.maxOpenTurns),
    ofServers(UPSTREAM_UP, ({ isUp }) => isUp),
    ofServers(UPSTREAM_EJECTED, ({ isEjected }) => isEjected),
    ofServers(UPSTREAM_DRAINING, ({ drains }) => drains),
    ofServers(UPSTREAM_IN_FLIGHT, ({ inFlight }) => inFlight),
    ofServers(UPSTREAM_WAITING, ({ waiting }) => waiting),
    ofServers(UPSTREAM_LOAD, ({ load }) => load),
    [DISK_LOW, disk === undefined ? [] : [[{}, Number(processState.isDiskClosed)]]],
    ofProcess(DISK_FREE, freeDisk),
    ofProcess(MEMORY, memory),
    ofProcess(WEBHOOKS_WAITING, pendingDeliveries.total),
    ofProcess(BATCHES, pendingBatches.total),
    inUse(FILES_OPEN, open?.used, open?.limit),
    inUse(OBJECTS_OPEN, open?.objects.open, open?.objects.limit),
    [INGESTION, [...ingestingStores()].map(([state, stores]) => [{ [STATE]: state }, stores] as const)],
    [OBJECTS_DAMAGED, [...damagedObjects()].map(([name, count]) => [{ "responses_edge.class": name }, count] as const)],
    ofProcess(KEYS_UP, keys === undefined ? undefined : Number(keys === "ok")),
    ofProcess(FILE_REFUSED, isFileRefused === undefined ? undefined : Number(isFileRefused)),
    ofProcess(CERTIFICATE_END, certificateEnd && certificateEnd / 1000),
    ofProcess(BACKUP_TIME, backupAt && backupAt / 1000),
    [BUILD, [[{ version: SCOPE.version }, 1]]],
  ];
}
