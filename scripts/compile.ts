/**
 * `npm run compile`: makes `dist/responses-edge`, one executable for this machine's platform that has workerd, the Worker and its
 * configuration in it, and needs no Node. docs/self-hosting.md lists the differences from `serve`.
 */
import { execFileSync } from "node:child_process";
import { closeSync, mkdirSync, mkdtempSync, openSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bundleInto } from "../cli/serve/bundle.ts";
import { root, workerd } from "../cli/serve/installation.ts";
import { workerdConfig } from "../cli/serve/workerd.ts";
import { VARIABLE_NAMES } from "../src/config/index.ts";

const target = join(root, "dist/responses-edge");
const directory = mkdtempSync(join(tmpdir(), "responses-edge-"));
try {
  const bundle = join(directory, "worker");
  bundleInto(bundle);
  const configFile = join(directory, "workerd.capnp");
  // The program's options `--socket-addr http0=…` and `--directory-path disk=…` override them.
  const addresses = ["127.0.0.1:8787"];
  const storage = "data";
  writeFileSync(configFile, workerdConfig({ addresses, bundle, storage, variables: VARIABLE_NAMES, authorities: [] }));
  mkdirSync(join(root, "dist"), { recursive: true });
  // Has another name until it is complete, because the existing one may be running.
  const file = openSync(`${target}.new`, "w", 0o755);
  execFileSync(workerd, ["compile", "--import-path=/", configFile], { stdio: ["ignore", file, "inherit"] });
  closeSync(file);
  renameSync(`${target}.new`, target);
} finally {
  rmSync(directory, { recursive: true, force: true });
}
