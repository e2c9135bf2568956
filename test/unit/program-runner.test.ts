import type { ProgramRun } from "@responses-edge/programs";
import { expect, it } from "vitest";
import { programsOf } from "../../src/assembly/assemble-turn.ts";
import { programRunner } from "../../src/assembly/program-runner.ts";
import { loadConfig, type Variables } from "../../src/config/index.ts";
import { type LastLine, TASK_HEADER, taskOf } from "../../src/contract/bounded-tasks.ts";

/** A step of a program in a process of its own (`src/assembly/program-runner.ts`), as the Worker sees it. */

const RUN: ProgramRun = { code: "return 1;", tools: ["stock"], seed: "1", startedAt: 0, results: [] };

const END: LastLine = { end: true };
const ENDED = { type: "ended", status: "completed", output: "1" };
const stepLine = (step: unknown) => ({ step: JSON.stringify(step) });

/** Runs a step where processes give these answers, one after another. Gives the number of answers, too. */
async function stepWith(...answers: (Response | readonly object[])[]) {
  const left = answers.values();
  let asked = 0;
  const service = {
    async fetch(_url: unknown, init?: RequestInit) {
      asked += 1;
      expect(taskOf(new Headers(init?.headers).get(TASK_HEADER))).toEqual({ type: "program", tenant: "acme" });
      expect(JSON.parse(String(init?.body))).toEqual(RUN);
      const { value } = left.next();
      if (!value || value instanceof Response) return value ?? Response.error();
      return new Response(value.map((line) => `${JSON.stringify(line)}\n`).join(""));
    },
  };
  const step = await programRunner(service as never)?.step(RUN, "acme", new AbortController().signal);
  return { step, asked };
}

it("a step is that of the process", async () => {
  expect(await stepWith([stepLine(ENDED), END])).toEqual({ step: ENDED, asked: 1 });
});

it.each<[how: string, first: readonly object[]]>([
  ["and its launcher says so", [{ died: true }]],
  ["and its answer breaks off", []],
])("a step is tried again when its process dies: %s", async (_, first) => {
  expect(await stepWith(first, [stepLine(ENDED), END])).toEqual({ step: ENDED, asked: 2 });
});

it.each<[what: string, output: string, asked: number, answers: (readonly object[])[]]>([
  ["takes too long", "The program takes too much time.", 1, [[{ passed: "time" }]]],
  ["takes too much memory", "The program takes too much memory.", 1, [[{ passed: "memory" }]]],
  ["ends three processes", "The program ends the process that runs it.", 3, [[{ died: true }], [], [{ died: true }]]],
  ["forges a step", "The program has changed what runs it.", 1, [[stepLine({ type: "calls", calls: [7] }), END]]],
])("a program that %s fails, for its model", async (_, output, asked, answers) => {
  expect(await stepWith(...answers)).toEqual({ step: { type: "ended", status: "failed", output }, asked });
});

it("a server that starts no process is a 503", async () => {
  const refused = stepWith(new Response(null, { status: 503 }));
  await expect(refused).rejects.toMatchObject({ status: 503, code: "program_runner_unavailable" });
});

const configure = (variables: Partial<Variables>) =>
  loadConfig({ VLLM_BASE_URL: "http://vllm/v1", ...variables } as Variables);

it("programs are a 400 where the operator refuses them", () => {
  const request = { tools: [{ type: "programmatic_tool_calling" as const }] };
  expect(programsOf({ tenant: "acme" }, request, configure({}).tools)).toHaveProperty("step");
  const refused = configure({ PROGRAMS: "refuse" }).tools;
  expect(refused.absent).toContain("programmatic_tool_calling");
  expect(() => programsOf({ tenant: "acme" }, request, refused)).toThrow(
    expect.objectContaining({ status: 400, param: "tools[0].type" }),
  );
});

it("a step ends with its signal", async () => {
  const stop = new AbortController();
  const service = {
    fetch: async () => {
      stop.abort(new Error("the client has left"));
      return Response.error();
    },
  };
  const step = programRunner(service as never)?.step(RUN, "acme", stop.signal);
  await expect(step).rejects.toThrow("the client has left");
});
