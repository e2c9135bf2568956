import { readFileSync } from "node:fs";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The projects in the order in which they run. Those of one queue follow each other: a worker changes its project only by starting anew. */
const PROJECTS = ["browser", "workerd-fake-timers", "workerd", "node"];

/** It waits for alarms most of the time, and computes little: others run beside it. */
const WAITING = "/test/unit/tool-recovery.test.ts";

/** The beginnings and ends of processes, and the tests with many cases, in the text of a test file. */
const LONG = /\b(?:start|serve|restart|begin|run|kill|die)\w*\(|\.each|numRuns/g;

/** The characters of other text that take as long as one of those. */
const TEXT_PER_LONG = 3_000;

/**
 * Begins with the files that take long, so that none is left alone at the end: with vitest's own record of the earlier run
 * if there is one (`node_modules/.vite`), else, as in CI, with an estimate from the text.
 */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const order = new Map(files.map((file) => [file, [groupOf(file), -this.#lengthOf(file)] as const]));
    const of = (file: TestSpecification) => order.get(file) ?? [0, 0];
    return files.toSorted((one, other) => of(one)[0] - of(other)[0] || of(one)[1] - of(other)[1]);
  }

  /** Milliseconds: those of the earlier run, or an estimate, a millisecond for each six characters. */
  #lengthOf(file: TestSpecification): number {
    const measured = this.ctx.cache.getTestSpecificationResult(file)?.duration;
    if (measured) return measured;
    // Those of `over-sockets` have the tests of the file of the same name.
    const text = readFileSync(file.moduleId.replace("/over-sockets/", "/"), "utf8");
    return (text.length + (text.match(LONG)?.length ?? 0) * TEXT_PER_LONG) / 6;
  }
}

const groupOf = ({ project, moduleId }: TestSpecification) =>
  moduleId.endsWith(WAITING) ? -1 : PROJECTS.indexOf(project.name);
