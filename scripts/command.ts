import { join, parse } from "node:path";
import { build } from "esbuild";
import { root } from "../cli/serve/installation.ts";

/**
 * Bundles the command for Node into `folder`, as a package has it: `cli.js` with a file for each subcommand, so that `serve`
 * loads no other's code; `replacement.js`, the module that a running command loads from a version which was installed
 * meanwhile; and `helper.js`, its helper process.
 */
export async function bundleCommand(folder: string): Promise<void> {
  const programs = ["cli/reload/replacement.ts", "cli/serve/helper.ts"];
  await Promise.all([
    bundle(folder, { cli: join(root, "cli/main.ts") }, true),
    // Each in one file: it must not share modules with a running command of another version.
    ...programs.map((path) => bundle(folder, { [parse(path).name]: join(root, path) }, false)),
  ]);
}

async function bundle(folder: string, entryPoints: Record<string, string>, splitting: boolean): Promise<void> {
  await build({
    ...{ entryPoints, splitting },
    chunkNames: "cli-[name]-[hash]",
    outdir: folder,
    absWorkingDir: root,
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node24",
    // Bundled packages that are no ES modules (yaml) load Node's own modules by `require`.
    banner: {
      js: 'import * as nodeModule from "node:module"; const require = nodeModule.createRequire(import.meta.url);',
    },
    logLevel: "warning",
  });
}
