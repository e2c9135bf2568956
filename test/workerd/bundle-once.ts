import { mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { bundleCommand } from "../../scripts/command.ts";
import { BUNDLE_VARIABLE, bundleInto, COMMAND_VARIABLE, root } from "./tools.ts";

/**
 * Bundles the command and the Worker once for all test files of a run; the Worker only if `npm run check` has not just
 * done so. Returns a function that removes the Worker's bundle.
 */
export default async function setup(project: TestProject): Promise<(() => void) | undefined> {
  if (!process.env[COMMAND_VARIABLE]) {
    await makeCommand();
    project.onTestsRerun(makeCommand);
  }
  if (process.env[BUNDLE_VARIABLE]) return undefined;
  const directory = mkdtempSync(join(tmpdir(), "responses-edge-bundle-"));
  const bundle = () => bundleInto(directory);
  bundle();
  project.onTestsRerun(bundle);
  process.env[BUNDLE_VARIABLE] = directory;
  return () => rmSync(directory, { recursive: true, force: true });
}

/** Bundles the command to the same path in each run, which Node's cache of compiled code needs. */
async function makeCommand(): Promise<void> {
  const folder = join(root, "dist/command");
  mkdirSync(folder, { recursive: true });
  // Another run of the same checkout may start it meanwhile.
  const made = mkdtempSync(`${folder}-`);
  await bundleCommand(made);
  for (const name of readdirSync(made)) renameSync(join(made, name), join(folder, name));
  rmSync(made, { recursive: true });
  process.env[COMMAND_VARIABLE] = join(folder, "cli.js");
}
