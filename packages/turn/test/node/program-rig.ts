import type { ProgramRun, ProgramStep } from "@responses-edge/programs/contract";

/** Runs programs in this process, as the isolates do: for programs of tests alone. */

type Make = new (...names: string[]) => (...values: unknown[]) => Promise<unknown>;
const AsyncFunction = (async () => {}).constructor as Make;

export async function stepHere(run: ProgramRun): Promise<ProgramStep> {
  const calls: { sequence: number; name: string; arguments: unknown }[] = [];
  const open = new Map<number, { resolve: (value: unknown) => void; reject: (reason: unknown) => void }>();
  const tools: Record<string, unknown> = {};
  for (const name of run.tools) {
    tools[name] = (args: unknown = {}) =>
      new Promise((resolve, reject) => {
        const sequence = calls.length;
        calls.push({ sequence, name, arguments: args });
        open.set(sequence, { resolve, reject });
      });
  }
  let written = "";
  const log = (...values: unknown[]) => {
    written += `${values.map(text).join(" ")}\n`;
  };
  let end: ProgramStep | undefined;
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  try {
    new AsyncFunction("tools", "console", run.code)(tools, { log }).then(
      (value) => {
        end = { type: "ended", status: "completed", output: written + (value === undefined ? "" : text(value)) };
      },
      (error: unknown) => {
        end = { type: "ended", status: "failed", output: `${written}${error}` };
      },
    );
  } catch (error) {
    end = { type: "ended", status: "failed", output: String(error) };
  }
  await settle();
  for (const result of run.results) {
    const waiting = open.get(result.sequence);
    if (!waiting) throw new Error(`The program has not made the call ${result.sequence}.`);
    open.delete(result.sequence);
    if ("error" in result) waiting.reject(new Error(result.error));
    else waiting.resolve(result.output);
    await settle();
  }
  return end ?? { type: "calls", calls: calls.filter(({ sequence }) => open.has(sequence)), console: written };
}

function text(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
