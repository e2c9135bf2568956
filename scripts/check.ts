import { exec } from "node:child_process";

/** `npm run check`: all that can be checked without running a test, side by side. Says what has failed, and why. */

// Checkers side by side would each look at the same libraries: one thread does the least work.
const CHECKS = [
  "tsc --singleThreaded",
  "tsc --singleThreaded -p test",
  "tsc --singleThreaded -p test/unit",
  "biome ci .",
  "npm run build",
];

for (const command of CHECKS) {
  exec(command, { maxBuffer: Number.POSITIVE_INFINITY }, (error, stdout, stderr) => {
    if (!error) return;
    console.error(`${command}\n${stdout}${stderr}`);
    process.exitCode = 1;
  });
}
