import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { root } from "../workerd/tools.ts";
import { built, whyNot } from "./go-program.ts";

/** The files of deploy/, checked by their programs or by these programs' parsers. */

function whyNoProgram(command: string, argument: string, purpose: string): string | undefined {
  const why = spawnSync(command, [argument]).status === 0 ? undefined : `there is no ${command}, ${purpose}`;
  if (why !== undefined) console.warn(`SKIPPED: ${why}.`);
  return why;
}

const go = whyNoProgram("go", "version", "which compose-go is built with");
const systemd = whyNoProgram("systemd-analyze", "--version", "a part of systemd");

const folder = mkdtempSync(join(tmpdir(), "responses-edge-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe.skipIf(go !== undefined)("compose.yaml", () => {
  const binary = join(root, "node_modules/.cache/compose/compose");
  const load = (env: string) => {
    const file = join(folder, "env");
    writeFileSync(file, env);
    return spawnSync(binary, [join(root, "deploy/compose.yaml"), file], { encoding: "utf8", env: {} });
  };
  beforeAll(() => {
    mkdirSync(join(root, "node_modules/.cache/compose"), { recursive: true });
    execFileSync("go", ["build", "-o", binary, "."], { cwd: join(root, "test/deploy/compose") });
  });

  const REQUIRED = ["DOMAIN", "API_KEYS", "VLLM_API_KEY", "SEARXNG_SECRET", "VLLM_MODEL"];

  it("is valid with its secrets", () => {
    const { stdout, stderr, status } = load(
      `${REQUIRED.map((name) => `${name}=a\n`).join("")}VLLM_ARGS=--tool-call-parser hermes`,
    );
    expect([status, stderr]).toEqual([0, ""]);
    expect(parse(stdout).services.vllm.command).toEqual([
      "a",
      "--enable-prompt-tokens-details",
      "--shutdown-timeout",
      "60",
      "--tool-call-parser",
      "hermes",
    ]);
  });

  it.each(REQUIRED)("does not start without %s", (missing) => {
    const { stderr, status } = load(REQUIRED.map((name) => `${name}=${name === missing ? "" : "a"}\n`).join(""));
    expect([status, stderr]).toEqual([1, expect.stringContaining(`required variable ${missing} is missing`)]);
  });
});

const ACTIONLINT = { variable: "ACTIONLINT", source: "github.com/rhysd/actionlint/cmd/actionlint@v1.7.7" };
const workflows = whyNot(ACTIONLINT);
if (workflows !== undefined) console.warn(`SKIPPED: ${workflows}.`);

describe.skipIf(workflows !== undefined)("the workflows of GitHub", () => {
  it.each(["ci", "release"])("%s.yml is valid, with inputs that its actions have", (name) => {
    const file = join(root, `.github/workflows/${name}.yml`);
    const { status, stdout, stderr } = spawnSync(built(ACTIONLINT), ["-shellcheck=", file], { encoding: "utf8" });
    expect([status, stdout + stderr]).toEqual([0, ""]);
  });
});

describe.skipIf(systemd !== undefined)("the units", () => {
  it.each(["responses-edge", "responses-edge-backup"])(
    "%s.service is a valid unit, and restricts the process",
    (name) => {
      const unit = execFileSync("sed", [
        "s#^ExecStart=[^ ]*#ExecStart=/bin/true#",
        join(root, `deploy/${name}.service`),
      ]);
      const file = join(folder, `${name}.service`);
      writeFileSync(file, unit);
      const { status, stderr } = spawnSync("systemd-analyze", ["verify", file], { encoding: "utf8" });
      expect([status, stderr]).toEqual([0, ""]);
      const rated = execFileSync("systemd-analyze", ["security", "--offline=true", file], { encoding: "utf8" });
      expect(rated).toMatch(new RegExp(`Overall exposure level for ${name}.service: [01]\\.\\d OK`));
    },
  );

  it("the timer is valid", () => {
    copyFileSync(join(root, "deploy/responses-edge-backup.timer"), join(folder, "responses-edge-backup.timer"));
    const file = join(folder, "responses-edge-backup.timer");
    const { status, stderr } = spawnSync("systemd-analyze", ["verify", file], { encoding: "utf8" });
    expect([status, stderr]).toEqual([0, ""]);
  });
});
