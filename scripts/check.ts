import { exec } from "node:child_process";
import { rmSync } from "node:fs";

/** `npm run check`: all that can be checked without running a test, side by side. Says what has failed, and why. */

// Checkers side by side would each look at the same libraries: one thread does the least work. Files that have not changed since the last
// time are not checked again.
const TSC = "tsc --singleThreaded --incremental --tsBuildInfoFile node_modules/.cache/tsc";
/** Files of the bundle are named by what is in them: those of an earlier one would stay. */
const BUNDLE = "dist/worker";
rmSync(BUNDLE, { recursive: true, force: true });

const CHECKS = [
  `${TSC}/src.json`,
  `${TSC}/test.json -p test`,
  `${TSC}/unit.json -p test/unit`,
  `${TSC}/console.json -p packages/console`,
  "biome ci .",
  `wrangler deploy --dry-run --outdir ${BUNDLE}`,
];

for (const command of CHECKS) {
  exec(command, { maxBuffer: Number.POSITIVE_INFINITY }, (error, stdout, stderr) => {
    if (!error) return;
    console.error(`${command}\n${stdout}${stderr}`);
    process.exitCode = 1;
  });
}
