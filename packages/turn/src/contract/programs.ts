import type { ProgramRun, ProgramStep } from "@responses-edge/programs/contract";

/** Runs the programs of a turn's tenant. */
export interface Programs {
  /** As `ProgramRunner.step`. */
  step(run: ProgramRun, signal: AbortSignal): Promise<ProgramStep>;
}
