import type { Gauge } from "@responses-edge/otlp";

/** The gauges, each once: values of this moment, in this process. */

export const WORK: Gauge = {
  name: "responses_edge.work.active",
  description: "Running work, by its kind: foreground turns, runs, bodies that are read.",
};

export const PERMITS: Gauge = {
  name: "responses_edge.permits",
  description: "Memory permits (MAX_OPEN_TURNS): used ones, and the limit.",
};

export const UPSTREAM_UP: Gauge = {
  name: "responses_edge.upstream.up",
  description:
    "1 if the model server answered last, 0 if it is down, hangs, or gives no usable answers, as this process knows it.",
};

export const UPSTREAM_EJECTED: Gauge = {
  name: "responses_edge.upstream.ejected",
  description: "1 while the model server is ejected because of repeated failures.",
};

export const UPSTREAM_DRAINING: Gauge = {
  name: "responses_edge.upstream.draining",
  description: "1 if the model server gets no new conversations.",
};

export const UPSTREAM_IN_FLIGHT: Gauge = {
  name: "responses_edge.upstream.in_flight",
  description: "Requests of this process in progress at the model server.",
};

export const UPSTREAM_WAITING: Gauge = {
  name: "responses_edge.upstream.waiting",
  description: "Requests of this process that wait for the saturated model server.",
};

export const UPSTREAM_LOAD: Gauge = {
  name: "responses_edge.upstream.load",
  description: "Running and waiting requests at the model server, as the board knows them.",
};

export const DISK_LOW: Gauge = {
  name: "responses_edge.disk.low",
  description: "1 while new data is refused: less than MIN_FREE_DISK is free, or the disk is read-only.",
};

export const DISK_FREE: Gauge = {
  name: "responses_edge.disk.free",
  unit: "bytes",
  description: "Free bytes on the data folder's disk.",
};

export const MEMORY: Gauge = {
  name: "responses_edge.memory.resident",
  unit: "bytes",
  description: "Resident memory of the process.",
};

export const WEBHOOKS_WAITING: Gauge = {
  name: "responses_edge.webhooks.waiting",
  description: "Waiting webhook deliveries, of the tenants whose webhooks this process has opened.",
};

export const BATCHES: Gauge = {
  name: "responses_edge.batches.active",
  description: "Unfinished batches, of the tenants whose batches this process has opened.",
};

export const FILES_OPEN: Gauge = {
  name: "responses_edge.files.open",
  description: "Open files of this process, and their limit.",
};

export const OBJECTS_OPEN: Gauge = {
  name: "responses_edge.objects.open",
  description: "Open objects of this process, and their limit.",
};

export const INGESTION: Gauge = {
  name: "responses_edge.ingestion.stores",
  description: "Vector stores whose files this process indexes, and those waiting for an embedding server or a limit.",
};

export const OBJECTS_DAMAGED: Gauge = {
  name: "responses_edge.objects.damaged",
  description: "Damaged objects that this process has found, by their class.",
};

export const KEYS_UP: Gauge = {
  name: "responses_edge.keys.up",
  description: "1 if the directory of API keys answered last, 0 if it is damaged or did not answer.",
};

export const FILE_REFUSED: Gauge = {
  name: "responses_edge.configuration.refused",
  description: "1 while the configuration file has errors, so that the configuration before it is in force.",
};

export const CERTIFICATE_END: Gauge = {
  name: "responses_edge.certificate.end",
  unit: "seconds",
  description: "The end of the server's own certificate, in Unix seconds.",
};

export const BACKUP_TIME: Gauge = {
  name: "responses_edge.backup.time",
  unit: "seconds",
  description: "When the newest backup of the data folder began, in Unix seconds.",
};

export const BUILD: Gauge = {
  name: "responses_edge.build.info",
  description: "1; its label is the running version.",
};

export const GAUGES: readonly Gauge[] = [
  WORK,
  PERMITS,
  UPSTREAM_UP,
  UPSTREAM_EJECTED,
  UPSTREAM_DRAINING,
  UPSTREAM_IN_FLIGHT,
  UPSTREAM_WAITING,
  UPSTREAM_LOAD,
  DISK_LOW,
  DISK_FREE,
  MEMORY,
  WEBHOOKS_WAITING,
  BATCHES,
  FILES_OPEN,
  OBJECTS_OPEN,
  INGESTION,
  OBJECTS_DAMAGED,
  KEYS_UP,
  FILE_REFUSED,
  CERTIFICATE_END,
  BACKUP_TIME,
  BUILD,
];
