import { existsSync } from "node:fs";

/**
 * The paths of Chromium in distributions, and of Google's Chrome. The browser without a window (headless shell) needs
 * half the CPU.
 */
const PLACES = [
  "/usr/bin/chromium-headless-shell",
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

/** The path of the installed browser, or of the one that CHROMIUM names; undefined if there is none. */
export const chromium = process.env.CHROMIUM || PLACES.find((path) => existsSync(path));
