import { randomBytes } from "node:crypto";
import { startToolServer } from "./server.ts";
import { optionsFromEnvironment } from "./settings.ts";

const apiKey = randomBytes(32).toString("base64url");
const options = { port: 8790, apiKey, ...optionsFromEnvironment(process.env) };
const server = await startToolServer(options);

console.log(`Tool server for development, for this machine only. It runs a model's code here, as you, without a sandbox.

  python:    ${server.pythonUrl} ${server.pythonVersion ? `(Python ${server.pythonVersion})` : "(no Python found: every call will fail)"}
  container: ${server.containerUrl}
  key:       ${options.apiKey === apiKey ? `TOOL_SERVER_API_KEY=${apiKey} (made for this run)` : "that of TOOL_SERVER_API_KEY"}`);
if (process.getuid?.() === 0)
  console.log("\n  You are root: the kernel does not limit root's processes. Better be another user.");

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.once(signal, () => void server.close().then(() => process.exit(0)));
}
