import { exec } from "node:child_process";
import { rmSync } from "node:fs";

/** `npm run check`: every check that runs no test, in parallel. Prints the failures and their reasons. */

// One thread does the least work: parallel checkers would each read the same libraries. All files are checked each time: with
// `--incremental`, an error in an unchanged file that a change of a merged interface elsewhere makes is not found.
const TSC = "tsc --singleThreaded";
/** The compilers end soon: collecting their garbage would take a third of their time. Beyond this memory Go collects it. */
const environment = { ...process.env, GOGC: "off", GOMEMLIMIT: "2GiB" };
/** Files of the bundle are named by their content, so those of an earlier bundle would stay. */
const BUNDLE = "dist/worker";
rmSync(BUNDLE, { recursive: true, force: true });

const CHECKS = [
  TSC,
  `${TSC} -p test`,
  `${TSC} -p test/unit`,
  `${TSC} -p packages/console`,
  "biome ci .",
  `node scripts/bundle.js ${BUNDLE}`,
];

for (const command of CHECKS) {
  exec(command, { maxBuffer: Number.POSITIVE_INFINITY, env: environment }, (error, stdout, stderr) => {
    if (!error) return;
    console.error(`${command}\n${stdout}${stderr}`);
    process.exitCode = 1;
  });
}
