import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { startToolServer } from "./server.ts";
import { optionsFromEnvironment } from "./settings.ts";

/** Set for a server that has been started in a mount namespace of its own. */
const IN_NAMESPACE = "TOOL_SERVER_NAMESPACE";

const apiKey = randomBytes(32).toString("base64url");
const options = { port: 8790, apiKey, ...optionsFromEnvironment(process.env) };

// In its own namespace it may mount, and whatever it mounts is gone when it has ended, however it ends.
if (options.sandbox === "bwrap" && process.env[IN_NAMESPACE] === undefined) await startInNamespace();
else await serve();

async function serve(): Promise<void> {
  const server = await startToolServer(options);
  const form =
    options.sandbox === "bwrap"
      ? "Tool server. It runs a model's code in a sandbox (bubblewrap): no network, a read-only system, bounded memory, processes and files."
      : "Tool server for development, for this machine only. It runs a model's code here, as you, without a sandbox (TOOL_SANDBOX=bwrap has one).";
  console.log(`${form}

  python:    ${server.pythonUrl} ${server.pythonVersion ? `(Python ${server.pythonVersion})` : "(no Python found: every call will fail)"}
  container: ${server.containerUrl}
  key:       ${options.apiKey === apiKey ? `TOOL_SERVER_API_KEY=${apiKey} (made for this run)` : "that of TOOL_SERVER_API_KEY"}`);
  if (options.sandbox !== "bwrap" && process.getuid?.() === 0)
    console.log("\n  You are root: the kernel does not limit root's processes. Better be another user.");
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.once(signal, () => void server.close().then(() => process.exit(0)));
  }
}

/** Starts this program again, in a mount namespace, and as its root. */
async function startInNamespace(): Promise<void> {
  const user = process.getuid?.() === 0 ? [] : ["--user", "--map-root-user"];
  const line = [process.execPath, ...process.execArgv, ...process.argv.slice(1)];
  const child = spawn("unshare", [...user, "--mount", "--kill-child", "--fork", ...line], {
    stdio: "inherit",
    env: { ...process.env, [IN_NAMESPACE]: "1" },
  });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => child.kill(signal));
  child.on("exit", (code) => process.exit(code ?? 1));
}
