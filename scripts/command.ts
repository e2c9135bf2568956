import { join } from "node:path";
import { build } from "esbuild";
import { root } from "../cli/serve/installation.ts";

/**
 * Bundles the command for Node into `folder`, as a package has it: `cli.js`, and `replacement.js`, the module that a
 * running command loads from a version which was installed meanwhile.
 */
export async function bundleCommand(folder: string): Promise<void> {
  await build({
    entryPoints: { cli: join(root, "cli/main.ts"), replacement: join(root, "cli/reload/replacement.ts") },
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
