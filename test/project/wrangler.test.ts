import { readFileSync } from "node:fs";
import { Ajv } from "ajv";
import { parse } from "smol-toml";
import { describe, expect, it } from "vitest";
import { VARIABLE_NAMES } from "../../src/config/index.ts";
import { CLASS_NAMES, OBJECTS } from "../../src/store/objects/registry.ts";

/** The configuration of a deployment to Cloudflare. */

function read(name: string): string {
  return readFileSync(new URL(`../../${name}`, import.meta.url), "utf8");
}

/** The settings that a page suggests. */
function snippets(page: string): string[] {
  const found = read(page).matchAll(/^( *)```toml\n([\s\S]*?)^ *```$/gm);
  return [...found].map(([, indent = "", text = ""]) => text.replaceAll(new RegExp(`^${indent}`, "gm"), ""));
}

interface Manifest {
  scripts: Record<string, string>;
  cloudflare: { bindings: Record<string, { description: string }> };
}

const manifest = JSON.parse(read("package.json")) as Manifest;
const settings = parse(read("wrangler.toml")) as {
  exports: Record<string, unknown>;
  durable_objects: { bindings: { name: string; class_name: string }[] };
} & Record<string, unknown>;

describe("wrangler.toml", () => {
  const ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false });
  const check = ajv.compile(JSON.parse(read("node_modules/wrangler/config-schema.json")) as object);

  it("matches wrangler's own schema", () => {
    check(settings);
    expect(check.errors ?? []).toEqual([]);
  });

  it("would not match with an unknown setting, or one of the wrong type", () => {
    expect(check({ ...settings, compatibility_dates: "2026-11-09" })).toBe(false);
    expect(check({ ...settings, limits: { cpu_ms: "300000" } })).toBe(false);
  });

  it.each(snippets("docs/deploy-cloudflare.md"))(
    "may have the settings of docs/deploy-cloudflare.md: %s",
    (snippet) => {
      check({ ...settings, ...parse(snippet) });
      expect(check.errors ?? []).toEqual([]);
    },
  );

  it("exports and binds the classes of the registry, which the Worker's module exports", () => {
    const classes = Object.entries(OBJECTS).map(([name, { className }]) => ({ name, class_name: className }));
    expect(settings.durable_objects.bindings).toHaveLength(classes.length);
    expect(settings.durable_objects.bindings).toEqual(expect.arrayContaining(classes));
    const sqlite = { type: "durable-object", storage: "sqlite" };
    expect(settings.exports).toEqual(Object.fromEntries(CLASS_NAMES.map((name) => [name, sqlite])));
    const module = read("src/index.ts");
    expect(CLASS_NAMES.filter((name) => !module.includes(`export { ${name} } from`))).toEqual([]);
  });

  it("stores no URL of a request: no traces, and no queries in its logs", () => {
    // `enabled` of [observability] turns both on unless they are named.
    expect(settings.observability).toMatchObject({ redact_query_string: true, traces: { enabled: false } });
  });
});

describe(".dev.vars.example, from which the button makes secrets", () => {
  const entries = read(".dev.vars.example")
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line) => line.split("=", 2) as [name: string, value: string]);

  it("asks for the model server and the first key", () => {
    expect(entries.map(([name]) => name)).toEqual(["VLLM_BASE_URL", "ADMIN_KEY"]);
    expect(VARIABLE_NAMES).toEqual(expect.arrayContaining(entries.map(([name]) => name)));
  });

  it("suggests no value, because it would be deployed", () => {
    expect(entries.filter(([, value]) => value !== "")).toEqual([]);
  });

  it("has a description in package.json for each of its names and each binding, and no others", () => {
    const bindings = settings.durable_objects.bindings.map(({ name }) => name);
    const described = Object.entries(manifest.cloudflare.bindings);
    expect(described.map(([name]) => name).toSorted()).toEqual(
      [...entries.map(([name]) => name), ...bindings].toSorted(),
    );
    expect(described.filter(([, { description }]) => description.trim() === "")).toEqual([]);
  });
});

it("the button builds and deploys with scripts that ask nothing", () => {
  expect(manifest.scripts).toMatchObject({
    build: "node scripts/bundle.js dist/worker",
    deploy: "wrangler deploy",
  });
});
