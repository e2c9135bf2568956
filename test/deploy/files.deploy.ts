import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { root } from "../workerd/tools.ts";

/** The files of deploy/, read by the programs that they are for, or by what these programs are made of. */

function whyNot(command: string, argument: string, purpose: string): string | undefined {
  const why = spawnSync(command, [argument]).status === 0 ? undefined : `there is no ${command}, ${purpose}`;
  if (why !== undefined) console.warn(`SKIPPED: ${why}.`);
  return why;
}

const go = whyNot("go", "version", "which compose-go is built with");
const validator = process.env.KUBERNETES_VALIDATE ?? "kubernetes-validate";
const kubernetes = whyNot(validator, "--version", "a package of PyPI's (KUBERNETES_VALIDATE may name it)");
const kustomizer = process.env.KUSTOMIZE ?? "kustomize";
const kustomize = whyNot(kustomizer, "version", "a part of kubectl's (KUSTOMIZE may name it)");
const systemd = whyNot("systemd-analyze", "--version", "a part of systemd");

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

  it("is valid, once its secrets are given", () => {
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

describe.skipIf(kubernetes !== undefined)("the manifests of Kubernetes", () => {
  const validate = (file: string) => {
    const { status, stdout, stderr } = spawnSync(validator, ["--strict", file], { encoding: "utf8" });
    return [status, stdout + stderr];
  };

  it.each(["statefulset", "service", "network-policy"])("%s.yaml has the shape that the API server wants", (name) => {
    const file = join(root, `deploy/kubernetes/${name}.yaml`);
    expect(validate(file)).toEqual([0, expect.stringContaining("passed")]);
  });

  it.skipIf(kustomize !== undefined)(
    "become one file with the image of a registry, and the secret under its own name",
    () => {
      const copy = join(folder, "kubernetes");
      cpSync(join(root, "deploy/kubernetes"), copy, { recursive: true });
      writeFileSync(join(copy, "secrets.env"), "API_KEYS=acme:0\n");
      const built = execFileSync(kustomizer, ["build", copy], { encoding: "utf8" });
      const file = join(folder, "built.yaml");
      writeFileSync(file, built);
      expect(validate(file)).toEqual([0, expect.stringContaining("secret/responses-edge")]);
      const objects = built.split("---\n").map((text) => parse(text));
      const secret = objects.find(({ kind }) => kind === "Secret");
      const set = objects.find(({ kind }) => kind === "StatefulSet");
      expect(set.spec.template.spec.containers[0]).toMatchObject({
        image: expect.stringMatching(/^registry\.example\.com\/responses-edge:\d/),
        envFrom: [{ secretRef: { name: secret.metadata.name } }],
      });
    },
  );
});

describe.skipIf(systemd !== undefined)("responses-edge.service", () => {
  it("is a unit as systemd wants it, and leaves the process little to do harm with", () => {
    const unit = execFileSync("sed", [
      "s#^ExecStart=[^ ]*#ExecStart=/bin/true#",
      join(root, "deploy/responses-edge.service"),
    ]);
    const file = join(folder, "responses-edge.service");
    writeFileSync(file, unit);
    const { status, stderr } = spawnSync("systemd-analyze", ["verify", file], { encoding: "utf8" });
    expect([status, stderr]).toEqual([0, ""]);
    const rated = execFileSync("systemd-analyze", ["security", "--offline=true", file], { encoding: "utf8" });
    expect(rated).toMatch(/Overall exposure level for responses-edge.service: [01]\.\d OK/);
  });
});
