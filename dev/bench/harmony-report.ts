import {
  type ColdStart,
  HISTORY_TOKENS,
  type HistoryCost,
  type ModuleCost,
  STREAM_TOKENS,
  type StreamCost,
} from "./harmony.ts";
import { median } from "./statistics.ts";
import { number, table, type Verdict } from "./tables.ts";
import type { BundledModule } from "./workers.ts";

/** The measurements of gpt-oss. */
export interface HarmonyResults {
  /** Per round. */
  streams: StreamCost[][];
  histories: HistoryCost[][];
  modules: ModuleCost[];
  coldStarts: ColdStart[];
  bundle: BundledModule[];
}

export function harmonyTables(results: HarmonyResults): string[] {
  return [
    streamTable(results.streams),
    historyTable(results.histories),
    moduleTable(results.modules),
    coldTable(results.coldStarts),
    bundleTable(results.bundle),
  ];
}

/** Compares the targets of gpt-oss with the measurements. */
export function harmonyVerdicts({ streams, coldStarts }: HarmonyResults): Verdict[] {
  const found = streamRows(streams).map(({ label, ratio }) => ({
    target: `gpt-oss against another model, CPU per token, ${label}`,
    measured: `×${number(ratio, 2)} of ×1.30`,
    met: ratio <= 1.3,
  }));
  const heap = (name: string) => coldStarts.find((start) => start.name.startsWith(name))?.heapMb ?? Number.NaN;
  const [health, chat, text, ids] = [
    "/health",
    "another",
    "gpt-oss's, prompt as text",
    "gpt-oss's, prompt as token",
  ].map(heap) as [number, number, number, number];
  const most = Math.max(chat, text) - health;
  return [
    ...found,
    {
      target: "Without a prompt as token ids, nothing of the tokenizer is loaded: JavaScript's heap",
      measured: `${number(Math.max(chat, text), 1)} MB, with it ${number(ids, 1)} MB`,
      met: most < (ids - health) / 10,
    },
  ];
}

/** Each row of the streams, with the medians of its rounds. */
function streamRows(streams: readonly StreamCost[][]) {
  return (streams[0] ?? []).map(({ perRead, store }, row) => {
    const rounds = streams.flatMap((round) => round[row]?.engines ?? []);
    return {
      label: `${perRead === 1 ? "an HTTP chunk each" : `${perRead} per HTTP chunk`}, ${store ? "stored" : "store:false"}`,
      chat: median(rounds.map(({ chat }) => chat)),
      harmony: median(rounds.map(({ harmony }) => harmony)),
      ratio: median(rounds.map(({ chat, harmony }) => harmony / chat)),
    };
  });
}

function streamTable(streams: readonly StreamCost[][]): string {
  return table(
    [`gpt-oss, 8 clients × ${STREAM_TOKENS} tokens, CPU µs / token`, "another model", "gpt-oss", "ratio"],
    streamRows(streams).map(({ label, chat, harmony, ratio }) => [
      label,
      number(chat, 2),
      number(harmony, 2),
      `×${number(ratio, 2)}`,
    ]),
  );
}

function historyTable(histories: readonly HistoryCost[][]): string {
  const rows = (histories[0] ?? []).map(({ name, promptBytes }, row) => {
    const rounds = histories.flatMap((round) => round[row] ?? []);
    const cell = (read: (cost: HistoryCost) => number | undefined) => {
      const values = rounds.map(read).filter((value) => value !== undefined);
      return values.length === 0 ? "–" : number(median(values), 0);
    };
    return [
      name,
      number(promptBytes / 1000, 0),
      cell(({ first }) => first?.cpuMs),
      cell(({ warm }) => warm.cpuMs),
      cell(({ first }) => first?.firstDeltaMs),
      cell(({ warm }) => warm.firstDeltaMs),
    ];
  });
  return table(
    [
      `A history of ${number(HISTORY_TOKENS, 0)} tokens`,
      "prompt, kB",
      "CPU ms, first",
      "CPU ms, warm",
      "first delta ms, first",
      "first delta ms, warm",
    ],
    rows,
  );
}

function moduleTable(modules: readonly ModuleCost[]): string {
  return table(
    [`${number(HISTORY_TOKENS, 0)} tokens, the modules alone in Node`, "first ms", "warm ms"],
    modules.map(({ step, firstMs, warmMs }) => [step, number(firstMs, 1), number(warmMs, 1)]),
  );
}

function coldTable(starts: readonly ColdStart[]): string {
  return table(
    [
      "From the process's start to the first answer",
      "p50 ms",
      "max ms",
      "CPU ms",
      "the second answer, p50 ms",
      "memory MB",
      "heap MB",
    ],
    starts.map(({ name, firstMs, secondMs, cpuMs, memoryMb, heapMb }) => [
      name,
      number(median(firstMs), 0),
      number(Math.max(...firstMs), 0),
      number(median(cpuMs), 0),
      number(median(secondMs), 1),
      number(median(memoryMb), 0),
      heapMb === undefined ? "–" : number(heapMb, 1),
    ]),
  );
}

function bundleTable(bundle: readonly BundledModule[]): string {
  return table(
    ["Modules of the Worker", "kB", "kB gzipped"],
    bundle.map(({ name, bytes, gzipped }) => [
      name.endsWith(".js") ? "its script" : "the tokenizer's data",
      number(bytes / 1000, 0),
      number(gzipped / 1000, 0),
    ]),
  );
}
