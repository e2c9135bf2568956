import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { freePort, root } from "../workerd/tools.ts";
import { itServes } from "./facts.ts";
import { startProgram } from "./program.ts";

/** The package, as a user has it: packed, installed into an empty folder, run by its name. */
describe("the installed package", () => {
  const folder = mkdtempSync(join(tmpdir(), "responses-edge-"));
  const run = (command: string, ...args: string[]) =>
    execFileSync(command, args, { cwd: folder, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
  beforeAll(() => {
    run(process.execPath, join(root, "scripts/package.ts"));
    run("npm", "pack", join(root, "dist/package"));
    const [archive = ""] = readdirSync(folder).filter((name) => name.endsWith(".tgz"));
    run("npm", "install", "--prefer-offline", `./${archive}`);
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it("has its command", () => {
    expect(run("npx", "responses-edge", "--version")).toMatch(
      /^responses-edge \d+\.\d+\.\d+ \(workerd 1\.\d{8}\.\d+\)\n$/,
    );
    expect(run("npx", "responses-edge", "create-key", "acme")).toMatch(/^ {2}acme:[0-9a-f]{64}$/m);
  });

  itServes(async (variables) => {
    const port = String(await freePort());
    return startProgram({
      command: join(folder, "node_modules/.bin/responses-edge"),
      args: ["serve"],
      environment: { PATH: process.env.PATH, PORT: port, STATE_DIRECTORY: join(folder, "data"), ...variables },
      url: `http://127.0.0.1:${port}`,
    });
  });
});
