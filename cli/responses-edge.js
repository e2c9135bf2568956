#!/usr/bin/env node
// The package's command runs this file. It is plain JavaScript without static imports, so that a Node which is too old
// for cli.js can print that.
const [major = 0] = process.versions.node.split(".").map(Number);
if (major >= 24) {
  await import("./cli.js");
} else {
  console.error(`responses-edge needs Node 24 or later; this is ${process.version}.`);
  process.exitCode = 1;
}
