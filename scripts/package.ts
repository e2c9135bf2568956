/**
 * `npm run package`: makes `dist/package`, the folder that `npm publish ./dist/package` publishes and that the image has. It
 * has the command in one file, the Worker's bundle, and workerd as its only dependency.
 */
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";
import { bundleInto } from "../cli/bundle.ts";
import { root } from "../cli/installation.ts";

const target = join(root, "dist/package");
rmSync(target, { recursive: true, force: true });
mkdirSync(join(target, "worker"), { recursive: true });

await bundleCommand();
bundleWorker();
for (const name of ["LICENSE", "wrangler.toml"]) copyFileSync(join(root, name), join(target, name));
for (const name of ["README.md", "responses-edge.js"]) copyFileSync(join(root, "cli", name), join(target, name));
writeFileSync(join(target, "THIRD-PARTY-LICENSES"), licenses());
writeFileSync(join(target, "package.json"), `${JSON.stringify(manifest(), null, 2)}\n`);

/** The command, for Node. */
async function bundleCommand(): Promise<void> {
  await build({
    entryPoints: [join(root, "cli/main.ts")],
    outfile: join(target, "cli.js"),
    absWorkingDir: root,
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node24",
    logLevel: "warning",
  });
}

/** The Worker, as it is deployed, without what wrangler puts beside it: a note, and a map that nothing reads. */
function bundleWorker(): void {
  const made = mkdtempSync(join(tmpdir(), "responses-edge-"));
  try {
    bundleInto(made);
    for (const name of readdirSync(made)) {
      if (name !== "index.js.map" && name !== "README.md") copyFileSync(join(made, name), join(target, "worker", name));
    }
  } finally {
    rmSync(made, { recursive: true, force: true });
  }
}

/**
 * The licences of the packages that the bundles have: whoever hands on their code hands these on, too. esbuild names each
 * file in a comment before its code.
 */
function licenses(): string {
  const code = ["cli.js", "worker/index.js"].map((name) => readFileSync(join(target, name), "utf8")).join("\n");
  const folders = [...code.matchAll(/^\/\/ (node_modules\/(?:@[^/]+\/)?[^/]+)\//gm)].map(([, folder = ""]) => folder);
  // Files that go along as they are: the tokenizer's vocabulary, the reader of PDF, and what the console shows itself with.
  const inFiles = ["gpt-tokenizer", "unpdf", "lit-html", "eventsource-parser"].map((name) => `node_modules/${name}`);
  return [...new Set([...folders, ...inFiles])].toSorted().map(licenseOf).join("\n");
}

function licenseOf(folder: string): string {
  const { name, version, license } = JSON.parse(readFileSync(join(root, folder, "package.json"), "utf8")) as {
    name: string;
    version: string;
    license: string;
  };
  const file = readdirSync(join(root, folder)).find((each) => /^licen[cs]e/i.test(each));
  const text = file ? readFileSync(join(root, folder, file), "utf8").trim() : `License: ${license}`;
  return `${name} ${version}\n\n${text}\n`;
}

/** What npm reads. Versions are exact: what is installed is what was tested. */
function manifest(): object {
  const { name, version, description, license, dependencies } = JSON.parse(
    readFileSync(join(root, "package.json"), "utf8"),
  ) as {
    name: string;
    version: string;
    description: string;
    license: string;
    dependencies: Record<string, string>;
  };
  return {
    ...{ name, version, description, license },
    type: "module",
    bin: { [name]: "responses-edge.js" },
    engines: { node: ">=24" },
    dependencies: { workerd: dependencies.workerd },
  };
}
