import type { Gauge } from "@responses-edge/otlp";

/** The gauges, each once: values of this moment, in this process. */

export const WORK: Gauge = {
  name: "responses_edge.work.active",
  description: "Work under way, by its kind: turns beside their clients, runs, bodies that are read.",
};

export const PERMITS: Gauge = {
  name: "responses_edge.permits",
  description: "Memory permits (MAX_OPEN_TURNS): how many are taken, and how many there are.",
};

export const UPSTREAM_UP: Gauge = {
  name: "responses_edge.upstream.up",
  description: "1 where the model server has answered last, 0 where it is down, as far as this process has seen.",
};

export const UPSTREAM_EJECTED: Gauge = {
  name: "responses_edge.upstream.ejected",
  description: "1 while the model server is left alone because it has failed again and again.",
};

export const UPSTREAM_DRAINING: Gauge = {
  name: "responses_edge.upstream.draining",
  description: "1 where the model server gets no new conversations.",
};

export const UPSTREAM_IN_FLIGHT: Gauge = {
  name: "responses_edge.upstream.in_flight",
  description: "Requests of this process that are under way to the model server.",
};

export const UPSTREAM_LOAD: Gauge = {
  name: "responses_edge.upstream.load",
  description: "Requests that run and wait at the model server, as the board has heard from it.",
};

export const DISK_LOW: Gauge = {
  name: "responses_edge.disk.low",
  description: "1 while less than MIN_FREE_DISK is free, and nothing new is stored.",
};

export const DISK_FREE: Gauge = {
  name: "responses_edge.disk.free",
  unit: "bytes",
  description: "Bytes that are free on the data folder's disk.",
};

export const MEMORY: Gauge = {
  name: "responses_edge.memory.resident",
  unit: "bytes",
  description: "Resident memory of the process.",
};

export const WEBHOOKS_WAITING: Gauge = {
  name: "responses_edge.webhooks.waiting",
  description: "Webhook deliveries that wait, of the tenants whose webhooks this process has had open.",
};

export const FILES_OPEN: Gauge = {
  name: "responses_edge.files.open",
  description: "Files that this process has open, and how many it may have.",
};

export const HOMES_OPEN: Gauge = {
  name: "responses_edge.homes.open",
  description: "Homes whose files this process has open, and how many it may have.",
};

export const INGESTION: Gauge = {
  name: "responses_edge.ingestion.stores",
  description:
    "Vector stores whose files this process indexes, and those that wait for an embedding server or a limit.",
};

export const BUILD: Gauge = {
  name: "responses_edge.build.info",
  description: "1; the version that runs is its label.",
};

export const GAUGES: readonly Gauge[] = [
  WORK,
  PERMITS,
  UPSTREAM_UP,
  UPSTREAM_EJECTED,
  UPSTREAM_DRAINING,
  UPSTREAM_IN_FLIGHT,
  UPSTREAM_LOAD,
  DISK_LOW,
  DISK_FREE,
  MEMORY,
  WEBHOOKS_WAITING,
  FILES_OPEN,
  HOMES_OPEN,
  INGESTION,
  BUILD,
];
