import { startToolServer } from "./server.ts";
import { optionsFromEnvironment } from "./settings.ts";

const server = await startToolServer({ port: 8790, ...optionsFromEnvironment(process.env) });

console.log(`Tool server for development, for this machine only. It runs a model's code here, as you, without a sandbox.

  python:    ${server.pythonUrl} ${server.pythonVersion ? `(Python ${server.pythonVersion})` : "(no Python found: every call will fail)"}
  container: ${server.containerUrl}`);
if (process.getuid?.() === 0)
  console.log("\n  You are root: the kernel does not limit root's processes. Better be another user.");

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => void server.close().then(() => process.exit(0)));
}
