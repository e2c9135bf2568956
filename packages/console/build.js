/** Bundles the console for the browser: `dist/first.js`, the scripts that it loads later, and `dist/console.css`; those that the gateway serves as they are also compressed. Any Node that wrangler runs on runs this. */
import { mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";
import { build, transform } from "esbuild";
import { compile } from "tailwindcss";

const folder = fileURLToPath(new URL("./", import.meta.url));

/**
 * Writes what has changed. A file is replaced whole: another process may read it meanwhile.
 * Rejects with esbuild's faults, which it has printed.
 */
export async function buildConsole() {
  /** @type {import("esbuild").BuildOptions} */
  const options = {
    absWorkingDir: folder,
    outdir: "dist",
    bundle: true,
    format: "esm",
    minify: true,
    legalComments: "none",
    write: false,
  };
  const made = await Promise.all([
    // `later.ts` imports `main.ts`. So esbuild puts all of `main.ts` into the one chunk that both have: the first load is one script.
    build({ ...options, entryPoints: ["src/main.ts", "src/later.ts"], splitting: true, chunkNames: "first" }),
    build({
      ...options,
      entryPoints: [
        "src/markdown-reader.ts",
        "src/code-colours.ts",
        "src/formulas.ts",
        "src/diagrams.ts",
        "src/chart.ts",
      ],
    }),
  ]);
  const scripts = made.flatMap((each) => each.outputFiles ?? []);
  const icon = { path: `${folder}dist/icon.svg`, contents: readFileSync(`${folder}src/icon.svg`) };
  const packed = [...scripts, icon].map(({ path, contents }) => ({
    path: `${path}.gz`,
    contents: gzipSync(contents, { level: 9 }),
  }));
  const outputFiles = [
    ...scripts.map(({ path, contents }) => ({ path, contents: Buffer.from(contents) })),
    ...packed,
    await styles(),
  ];
  mkdirSync(`${folder}dist`, { recursive: true });
  for (const { path, contents } of outputFiles) {
    if (bytesOf(path)?.equals(contents)) continue;
    writeFileSync(`${path}.${process.pid}`, contents);
    renameSync(`${path}.${process.pid}`, path);
  }
}

/** The style sheet, with the rules of those of Tailwind's classes that the templates have. */
async function styles() {
  const source = `${folder}src/`;
  const read = (/** @type {string} */ name) => readFileSync(source + name, "utf8");
  const { build: withClasses } = await compile(read("console.css"), {
    base: source,
    loadStylesheet: async (name, base) => ({ path: base + name, base, content: read(name) }),
  });
  const templates = readdirSync(source).filter((name) => /\.(ts|html)$/.test(name));
  const words = templates.flatMap((name) => read(name).split(/[\s"'`]+/));
  const { code } = await transform(withClasses([...new Set(words)]), {
    loader: "css",
    minify: true,
    legalComments: "none",
  });
  return { path: `${folder}dist/console.css`, contents: Buffer.from(code) };
}

/** @param {string} path */
function bytesOf(path) {
  try {
    return readFileSync(path);
  } catch {
    return undefined;
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) await buildConsole();
