#!/usr/bin/env node
// The package's command runs this file, and so does a checkout's. It is plain JavaScript without static imports, so that a Node which
// is too old for the rest can print that.
const [major = 0] = process.versions.node.split(".").map(Number);
const { existsSync } = await import("node:fs");
if (major < 24) {
  console.error(`responses-edge needs Node 24 or later; this is ${process.version}.`);
  process.exitCode = 1;
} else if (existsSync(new URL("cli.js", import.meta.url))) {
  await import("./cli.js");
} else {
  // From the second start on Node loads nothing to remove types with, which takes 20 MB of memory.
  const { enableCompileCache } = await import("node:module");
  const { fileURLToPath } = await import("node:url");
  enableCompileCache(fileURLToPath(new URL("../node_modules/.cache/cli", import.meta.url)));
  await import("./main.ts");
}
