import type { Attributes, GaugeReading, Instrument, Meter, Series } from "@responses-edge/otlp";
import type { Config } from "../config/index.ts";
import type { FileBindings } from "../store/objects/open-objects.ts";
import { askOthers, type OtherWorker, workerName } from "../store/objects/workers.ts";
import { GAUGES } from "../telemetry/gauges.ts";
import { INSTRUMENTS } from "../telemetry/instruments.ts";
import { readGauges } from "./gauges.ts";

/** The metrics of all workers of this machine. Each worker counts its own requests; its values have its number as a label. */

/** The values of one worker, by the names of instruments and gauges. */
export interface WorkerMetrics {
  worker: string;
  series: (readonly [name: string, series: Series[]])[];
  gauges: (readonly [name: string, values: GaugeReading[1]])[];
}

interface OtherMetrics extends OtherWorker {
  metrics(): Promise<WorkerMetrics | undefined>;
}

/** The content of `/metrics`. */
export interface Readings {
  meter: { read(): [Instrument, Series[]][] };
  gauges: readonly GaugeReading[];
}

/** The values of this process, for other workers. */
export async function ownMetrics(config: Config, files: FileBindings, totals: Meter): Promise<WorkerMetrics> {
  const gauges = await readGauges(config, files);
  return {
    worker: workerName ?? "",
    series: totals.read().map(([{ name }, series]) => [name, series]),
    gauges: gauges.map(([{ name }, values]) => [name, values]),
  };
}

/** The values of all workers. An unreachable worker's are left out. */
export async function allMetrics(config: Config, files: FileBindings, totals: Meter): Promise<Readings> {
  if (workerName === undefined) return { meter: totals, gauges: await readGauges(config, files) };
  const told = await Promise.all([
    ownMetrics(config, files, totals),
    askOthers((worker: OtherMetrics) => worker.metrics()),
  ]);
  const all = told.flat().filter((each) => each !== undefined);
  const labelled = ({ worker }: WorkerMetrics, attributes: Attributes) => ({ ...attributes, worker });
  const series = INSTRUMENTS.map((instrument): [Instrument, Series[]] => [
    instrument,
    all.flatMap((each) =>
      of(each.series, instrument.name).map((one) => ({ ...one, attributes: labelled(each, one.attributes) })),
    ),
  ]);
  const gauges = GAUGES.map(
    (gauge): GaugeReading => [
      gauge,
      all.flatMap((each) =>
        of(each.gauges, gauge.name).map(([attributes, value]) => [labelled(each, attributes), value] as const),
      ),
    ],
  );
  return { meter: { read: () => series }, gauges };
}

function of<Value>(named: readonly (readonly [string, readonly Value[]])[], name: string): readonly Value[] {
  return named.find(([each]) => each === name)?.[1] ?? [];
}
