/**
 * `node scripts/bundle.js FOLDER`: bundles the Worker of the working directory into FOLDER, as `wrangler deploy` does, and makes its
 * code shorter. workerd has the code twice in memory, once with two bytes for each character if a single one is beyond Latin-1.
 * So all are ASCII. Names stay, and lines are short: a trace of an error has both. `FOLDER/bundle-meta.json` is esbuild's list of
 * the files in it. With `--readable` the code stays as wrangler makes it, with its source map (`npm run paths`). Any Node that
 * wrangler runs on runs this.
 */
import { execFileSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { transform } from "esbuild";

const LINE_LENGTH = 120;

const wrangler = fileURLToPath(new URL("../node_modules/wrangler/bin/wrangler.js", import.meta.url));
const [folder = "", ...options] = process.argv.slice(2);
execFileSync(process.execPath, [wrangler, "deploy", "--dry-run", "--metafile", "--outdir", folder], {
  stdio: ["ignore", "ignore", "inherit"],
  env: {
    ...process.env,
    WRANGLER_SEND_METRICS: "false",
    WRANGLER_SEND_ERROR_REPORTS: "false",
    WRANGLER_HIDE_BANNER: "true",
    WRANGLER_LOG: "error",
  },
});
if (!options.includes("--readable")) {
  const file = join(folder, "index.js");
  const { code } = await transform(readFileSync(file, "utf8"), {
    minifyWhitespace: true,
    lineLimit: LINE_LENGTH,
    legalComments: "none",
    target: "esnext",
  });
  // esbuild leaves regular expressions as they are, in literals and in raw templates. An escape means the same in them.
  writeFileSync(
    file,
    code.replaceAll(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`),
  );
  // It is that of the longer code.
  rmSync(`${file}.map`, { force: true });
}
