/**
 * `npm run package`: makes `dist/package`, the folder that `npm publish ./dist/package` publishes and that the image
 * contains. It has the command in one file, the Worker's bundle, a bill of materials, and workerd as its only
 * dependency.
 */
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bundleInto, METAFILE, madeBundle } from "../cli/serve/bundle.ts";
import { root } from "../cli/serve/installation.ts";
import { bundleCommand } from "./command.ts";

/** The folder of a package, at the beginning of a path. */
const PACKAGE = /^node_modules\/(?:@[^/]+\/)?[^/]+/;

const target = join(root, "dist/package");
rmSync(target, { recursive: true, force: true });
mkdirSync(join(target, "worker"), { recursive: true });

await bundleCommand(target);
const workerFolders = bundleWorker();
for (const name of ["LICENSE", "wrangler.toml"]) copyFileSync(join(root, name), join(target, name));
for (const name of ["README.md", "responses-edge.js"]) copyFileSync(join(root, "cli", name), join(target, name));
const folders = bundledFolders();
// A copy of other projects' code must include their licences.
writeFileSync(join(target, "THIRD-PARTY-LICENSES"), folders.map(licenseOf).join("\n"));
writeFileSync(join(target, "sbom.cdx.json"), `${JSON.stringify(billOfMaterials(folders), null, 2)}\n`);
writeFileSync(join(target, "package.json"), `${JSON.stringify(manifest(), null, 2)}\n`);

/**
 * The Worker, without what is made beside it: wrangler's note, and the list of the files in it. Returns the folders of the packages in
 * that list.
 */
function bundleWorker(): string[] {
  const temporary = mkdtempSync(join(tmpdir(), "responses-edge-"));
  // A test run has made it.
  const made = madeBundle() ?? temporary;
  try {
    if (made === temporary) bundleInto(made);
    for (const name of readdirSync(made)) {
      if (!["README.md", METAFILE].includes(name)) {
        copyFileSync(join(made, name), join(target, "worker", name));
      }
    }
    const { outputs } = JSON.parse(readFileSync(join(made, METAFILE), "utf8")) as {
      outputs: Record<string, { inputs: Record<string, { bytesInOutput: number }> }>;
    };
    return Object.values(outputs).flatMap(({ inputs }) =>
      Object.entries(inputs).flatMap(([path, { bytesInOutput }]) => {
        const [folder] = PACKAGE.exec(path) ?? [];
        return folder !== undefined && bytesInOutput > 0 ? [folder] : [];
      }),
    );
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
}

/** The folders of the packages whose code the package has. esbuild names each file of the command in a comment before its code. */
function bundledFolders(): string[] {
  const scripts = readdirSync(target).filter((name) => name.endsWith(".js"));
  const code = scripts.map((name) => readFileSync(join(target, name), "utf8")).join("\n");
  const named = [...code.matchAll(/^\/\/ (\S+)$/gm)].flatMap(([, path = ""]) => PACKAGE.exec(path)?.[0] ?? []);
  const folders = [...named, ...workerFolders];
  // Files that are copied unchanged: the tokenizer's vocabulary, the PDF reader, and the console's libraries.
  const console = ["lit-html", "eventsource-parser", "marked", "lowlight", "devlop", "highlight.js", "temml", "uplot"];
  const inFiles = ["gpt-tokenizer", "unpdf", ...console].map((name) => `node_modules/${name}`);
  return [...new Set([...folders, ...inFiles])].toSorted();
}

/**
 * The bill of materials, CycloneDX: the packages whose code is in the bundles, and workerd, with the checksums of the
 * lock file. It has no time and no serial number, so that the same sources make the same package.
 */
function billOfMaterials(folders: readonly string[]): object {
  const said = execFileSync(
    "npm",
    ["sbom", "--package-lock-only", "--sbom-format", "cyclonedx", "--sbom-type", "application"],
    { cwd: root, encoding: "utf8", maxBuffer: 2 ** 26 },
  );
  const { bomFormat, specVersion, metadata, components, dependencies } = JSON.parse(said) as Bill;
  const { name, version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as NamedVersion;
  const shipped = new Set([...folders, "node_modules/workerd"].map((folder) => nameOf(folder)));
  const own = metadata.component["bom-ref"];
  const listed = components.filter((component) => shipped.has(`${component.name}@${component.version}`));
  const references = new Set([own, ...listed.map((component) => component["bom-ref"])]);
  const component = { ...metadata.component, name, version };
  return {
    ...{ bomFormat, specVersion, version: 1 },
    metadata: { tools: metadata.tools, component },
    components: listed,
    dependencies: dependencies
      .filter(({ ref }) => references.has(ref))
      .map(({ ref, dependsOn }) => ({
        ref,
        // The bundles contain these packages, whichever package of this repository asked for them.
        dependsOn:
          ref === own ? listed.map((each) => each["bom-ref"]) : dependsOn.filter((each) => references.has(each)),
      })),
  };
}

interface NamedVersion {
  name: string;
  version: string;
}

interface Component extends NamedVersion {
  "bom-ref": string;
}

interface Bill {
  bomFormat: string;
  specVersion: string;
  metadata: { tools: object; component: Component };
  components: Component[];
  dependencies: { ref: string; dependsOn: string[] }[];
}

function nameOf(folder: string): string {
  const { name, version } = JSON.parse(readFileSync(join(root, folder, "package.json"), "utf8")) as NamedVersion;
  return `${name}@${version}`;
}

function licenseOf(folder: string): string {
  const { name, version, license } = JSON.parse(readFileSync(join(root, folder, "package.json"), "utf8")) as {
    name: string;
    version: string;
    license: string;
  };
  const file = readdirSync(join(root, folder)).find((each) => /^licen[cs]e/i.test(each));
  const text = file ? readFileSync(join(root, folder, file), "utf8").trim() : `License: ${license}`;
  // The package of PDFium has compiled code without its licences.
  const inside =
    name === "@hyzyla/pdfium" ? [readFileSync(join(root, "packages/file-text/PDFIUM-LICENSES"), "utf8")] : [];
  return `${name} ${version}\n\n${[text, ...inside].join("\n\n").trim()}\n`;
}

/** The manifest that npm reads. Versions are exact: npm installs the tested ones. */
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
