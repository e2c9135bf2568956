/**
 * `node scripts/bundle.js FOLDER`: bundles the Worker of the working directory into FOLDER, as `wrangler deploy` does, and makes its
 * code shorter. workerd has the code twice in memory, once with two bytes for each character if a single one is beyond Latin-1.
 * So all are ASCII. Names stay, and lines are short: a trace of an error has both. `FOLDER/no-file-formats.js` is the same Worker
 * without the readers of PDF and other formats, for `serve`, which has files read by other processes. `FOLDER/bundle-meta.json` is
 * esbuild's list of the files in it. With `--readable` the code stays as wrangler makes it, with its source map (`npm run paths`).
 * Any Node that wrangler runs on runs this.
 */
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { transform } from "esbuild";

const LINE_LENGTH = 120;

/** The module without the readers, and the import in whose place it has another one (`packages/file-text`). */
const NO_FORMATS = "no-file-formats.js";
const ALIAS = "#file-formats:./packages/file-text/src/no-file-formats.ts";

const wrangler = fileURLToPath(new URL("../node_modules/wrangler/bin/wrangler.js", import.meta.url));
const [folder = "", ...options] = process.argv.slice(2);
const isReadable = options.includes("--readable");
bundle(folder, "--metafile");
addWithoutFormats();
if (!isReadable) for (const name of ["index.js", NO_FORMATS]) await shorten(join(folder, name));

/** Has wrangler bundle the Worker into a folder. */
function bundle(into, ...more) {
  execFileSync(process.execPath, [wrangler, "deploy", "--dry-run", "--outdir", into, ...more], {
    stdio: ["ignore", "ignore", "inherit"],
    env: {
      ...process.env,
      WRANGLER_SEND_METRICS: "false",
      WRANGLER_SEND_ERROR_REPORTS: "false",
      WRANGLER_HIDE_BANNER: "true",
      WRANGLER_LOG: "error",
    },
  });
}

/** Adds the module without the readers. The data that it imports are among those of the whole Worker. */
function addWithoutFormats() {
  const made = mkdtempSync(join(tmpdir(), "responses-edge-"));
  try {
    bundle(made, "--alias", ALIAS);
    for (const end of isReadable ? ["", ".map"] : [""]) {
      copyFileSync(join(made, `index.js${end}`), join(folder, `${NO_FORMATS}${end}`));
    }
  } finally {
    rmSync(made, { recursive: true, force: true });
  }
}

/** Makes the code of a module shorter, in place. */
async function shorten(file) {
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
