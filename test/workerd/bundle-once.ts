import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { BUNDLE_VARIABLE, bundleInto } from "./tools.ts";

/**
 * Bundles the Worker once for all test files of a run, unless `npm run check` has just done so. Each test file has its
 * own process. Returns a function that removes the bundle.
 */
export default function setup(project: TestProject): (() => void) | undefined {
  if (process.env[BUNDLE_VARIABLE]) return undefined;
  const directory = mkdtempSync(join(tmpdir(), "responses-edge-bundle-"));
  const bundle = () => bundleInto(directory);
  bundle();
  project.onTestsRerun(bundle);
  process.env[BUNDLE_VARIABLE] = directory;
  return () => rmSync(directory, { recursive: true, force: true });
}
