import type { Fleet, HandOver, PacedCpu, Recovery, Resume, RunCost } from "./durable.ts";
import { targetTable } from "./report.ts";
import { median } from "./statistics.ts";
import { number, percent, table, type Verdict } from "./tables.ts";

/** All measurements of a run of the durable part. */
export interface DurableResults {
  machine: string;
  versions: string;
  /** The CPU that other processes used, for each part. */
  noise: Record<string, number>;
  fleets: Fleet[];
  resume: Resume[];
  costs: RunCost[];
  cpu: PacedCpu[];
  recovery: Recovery;
  handOver: HandOver[];
}

export function durableReport(results: DurableResults): string {
  const noise = Object.entries(results.noise).map(([part, share]) => `${part} ${percent(share)}`);
  return [
    `${results.machine} · ${results.versions}`,
    `Other work took this much of the machine: ${noise.join(", ")}.`,
    targetTable(durableVerdicts(results)),
    fleetTable(results.fleets),
    resumeTable(results.resume),
    costTable(results.costs),
    cpuTable(results.cpu),
    recoveryTable(results.recovery),
    handOverTable(results.handOver),
  ].join("\n\n");
}

/** The rows of the event log, of all runs that were created together. */
export function logRows({ run }: RunCost): number {
  return run.rows["INSERT events"] ?? 0;
}

/** Compares the targets of durable runs with the measurements. */
export function durableVerdicts({ fleets, costs, recovery }: DurableResults): Verdict[] {
  const found: Verdict[] = fleets.map(({ runs, tokens, completed }) => ({
    target: `${number(runs, 0)} background runs of ${tokens} tokens, each in its own conversation, all complete`,
    measured: `${number(completed, 0)}`,
    met: completed === runs,
  }));
  for (const [name, limit] of [
    ["background, read as it runs", 60],
    ["background, unread", 10],
  ] as const) {
    const cost = costs.find((candidate) => candidate.name === name && candidate.tokens === 1_000);
    const rows = cost ? logRows(cost) : Number.NaN;
    const target = `A run writes ≤ ${limit} rows of log for 1,000 deltas at 50 tokens/s (${name})`;
    found.push({ target, measured: String(rows), met: rows <= limit });
  }
  const latest = Math.max(...recovery.unasked.started);
  found.push({
    target: "A run whose process died resumes within 60 s without any request",
    measured: `${number(latest / 1000, 1)} s`,
    met: latest <= 60_000,
  });
  return found;
}

function fleetTable(fleets: readonly Fleet[]): string {
  const row = (label: string, read: (fleet: Fleet) => string) => [label, ...fleets.map(read)];
  return table(
    [
      "Background runs at 50 tokens/s, each in its own conversation",
      ...fleets.map(({ runs, tokens }) => `${number(runs, 0)} × ${tokens} tokens`),
    ],
    [
      row("completed", ({ completed }) => number(completed, 0)),
      row("failed", ({ runs, completed }) => number(runs - completed, 0)),
      row("most runs at the model server at one time", ({ atOnce }) => number(atOnce, 0)),
      row("seconds until all were accepted", ({ acceptedSeconds }) => number(acceptedSeconds, 1)),
      row("seconds until all had completed", ({ seconds }) => number(seconds, 1)),
      row("CPU ms to make a conversation", ({ cpuMsPerConversation }) => number(cpuMsPerConversation, 1)),
      row("CPU ms for a run", ({ cpuMsPerRun }) => number(cpuMsPerRun, 1)),
      row("memory, idle → peak MB", ({ idleMb, peakMb }) => `${number(idleMb, 0)} → ${number(peakMb, 0)}`),
      row("KB for a run", ({ idleMb, peakMb, runs }) => number(((peakMb - idleMb) * 1024) / runs, 0)),
    ],
  );
}

function resumeTable(resume: readonly Resume[]): string {
  return table(
    [
      "A client resumes a run that has",
      "first event p50 ms",
      "first event p99 ms",
      "whole answer p50 ms",
      "kB of answer",
    ],
    resume.map(({ events, after, p50, p99, wholeP50, kilobytes }) => [
      `${number(events, 0)} events, ${after < 0 ? "from the first" : `after event ${number(after, 0)}`}`,
      number(p50, 2),
      number(p99, 2),
      number(wholeP50, 2),
      number(kilobytes, 0),
    ]),
  );
}

function costTable(costs: readonly RunCost[]): string {
  return table(
    [
      "One response at 50 tokens/s",
      "tokens",
      "rows written",
      "rows of the log",
      "rows of new tables",
      "rows of alarms",
      "rows written to remove it",
      "rows read",
      "object calls",
      "alarms that go off",
      "stored kB",
    ],
    costs.map((cost) => {
      const { name, tokens, together, run, afterwards, removal, storedBytes } = cost;
      const each = (count: number) => number(count / together, together === 1 ? 0 : 1);
      const calls = [...new Set(run.calls)].join(", ");
      const made = Object.entries(run.rows).filter(([kind]) => kind.startsWith("CREATE"));
      return [
        name,
        number(tokens, 0),
        each(run.rowsWritten + afterwards.rowsWritten),
        each(logRows(cost)),
        each(made.reduce((sum, [, rows]) => sum + rows, 0)),
        each(run.alarms + afterwards.alarms),
        each(removal.rowsWritten),
        each(run.rowsRead + afterwards.rowsRead),
        run.calls.length === 0 ? "0" : `${each(run.calls.length)} (${calls})`,
        each(run.rings + afterwards.rings),
        each(storedBytes / 1000),
      ];
    }),
  );
}

function cpuTable(cpu: readonly PacedCpu[]): string {
  return table(
    ["CPU of one response at 50 tokens/s", "ms", "µs / token"],
    cpu.map(({ name, tokens, cpuMs }) => [
      `${name}, ${tokens} tokens`,
      number(cpuMs, 1),
      number((cpuMs * 1000) / tokens, 0),
    ]),
  );
}

function recoveryTable({ ready, reader, asked, unasked }: Recovery): string {
  const row = (label: string, times: readonly number[]) => [
    label,
    String(times.length),
    number(median(times), 0),
    number(Math.max(...times), 0),
  ];
  return table(
    ["From the process's start after kill -9 until", "n", "p50 ms", "max ms"],
    [
      row("the process answers its first request; it has no run to resume", ready),
      row("a run asks the model server to continue, after its reader has returned", asked),
      row("that reader gets its first new event", reader),
      row("a run asks the model server to continue, after the home's alarm", unasked.started),
      row("those runs end", unasked.ended),
    ],
  );
}

function handOverTable(handOver: readonly HandOver[]): string {
  return table(
    ["From a turn's last byte to the next turn's request, one conversation", "turns", "p50 ms", "p99 ms"],
    handOver.map(({ name, turns, p50, p99 }) => [name, String(turns), number(p50, 1), number(p99, 1)]),
  );
}
