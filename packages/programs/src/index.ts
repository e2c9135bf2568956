export { BOUNDS } from "./bounds.ts";
export type { ProgramCall, ProgramResult, ProgramRun, ProgramRunner, ProgramStep } from "./contract.ts";
export { excessOf, loaderRunner } from "./runner.ts";
export { failed, MAX_STEP_BYTES, stepOf } from "./step.ts";
