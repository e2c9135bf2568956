import { existsSync } from "node:fs";

/** Where distributions put Chromium, and Google its Chrome. The one without a window does the same with half the work. */
const PLACES = [
  "/usr/bin/chromium-headless-shell",
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

/** The path of the installed browser, or of the one that CHROMIUM names; undefined where there is none. */
export const chromium = process.env.CHROMIUM || PLACES.find((path) => existsSync(path));
