import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv } from "ajv";
import { DockerfileParser, type Instruction, type JSONInstruction } from "dockerfile-ast";
import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import { SERVE_VARIABLES } from "../../cli/configuration/serve-settings.ts";
import { EXIT } from "../../cli/serve/refusal.ts";
import { VARIABLE_NAMES } from "../../src/config/index.ts";
import { root } from "../workerd/tools.ts";

/** The deployment files agree with each other and with the program. `npm run test:deploy` runs them. */

const read = (file: string) => readFileSync(join(root, file), "utf8");
const manifest = JSON.parse(read("package.json"));
const compose = parse(read("deploy/compose.yaml"));

/** Variables that some part of this project reads. */
const KNOWN: readonly string[] = [...VARIABLE_NAMES, ...SERVE_VARIABLES];

/** The names in an example of an environment, and those with a value. */
function entriesOf(file: string): [name: string, value: string][] {
  return [...read(file).matchAll(/^([A-Z_]+)=(.*)$/gm)].map(([, name = "", value = ""]) => [name, value]);
}

describe("the Dockerfile", () => {
  const dockerfile = DockerfileParser.parse(read("Dockerfile"));
  const instructions = dockerfile.getInstructions();
  const final = instructions.slice(instructions.findLastIndex((each) => each.getKeyword() === "FROM"));
  const one = (keyword: string): Instruction => {
    const found = final.filter((each) => each.getKeyword() === keyword);
    if (found.length !== 1 || !found[0]) throw new Error(`The last stage has ${found.length} ${keyword}.`);
    return found[0];
  };
  const words = (instruction: Instruction) =>
    (instruction as JSONInstruction).getJSONStrings().map((each) => each.getJSONValue());

  it("begins with pinned images, and has the tests' version of Node", () => {
    const images = dockerfile.getFROMs().map((from) => from.getImage());
    expect(images).toEqual([
      `node:${manifest.devDependencies.node}-bookworm-slim`,
      expect.stringMatching(/^gcr\.io\/distroless\/[a-z]+-debian12:nonroot$/),
    ]);
  });

  it("copies existing files that .dockerignore admits", () => {
    const ignored = read(".dockerignore").split("\n");
    const sources = dockerfile
      .getCOPYs()
      .filter((copy) => !copy.getFlags().some((flag) => flag.getName() === "from"))
      .flatMap((copy) =>
        copy
          .getArguments()
          .slice(0, -1)
          .map((each) => each.getValue()),
      );
    expect(sources).toContain("src");
    for (const source of sources) {
      expect(existsSync(join(root, source)), source).toBe(true);
      expect(ignored).toContain(`!${source}`);
    }
  });

  it("runs the package's command as a user other than root, and checks its health", () => {
    expect(one("USER").getArgumentsContent()).toMatch(/^[1-9]\d*:[1-9]\d*$/);
    expect(words(one("ENTRYPOINT"))).toEqual(["/usr/local/bin/node", "/app/responses-edge.js"]);
    expect(existsSync(join(root, "cli/responses-edge.js"))).toBe(true);
    expect(one("HEALTHCHECK").getArgumentsContent()).toMatch(
      /CMD \["\/usr\/local\/bin\/node", "\/app\/responses-edge.js", "health"\]$/,
    );
    expect(one("STOPSIGNAL").getArgumentsContent()).toBe("SIGTERM");
  });

  it("sets no unknown variable, and no secret", () => {
    const names = [...(one("ENV").getArgumentsContent() ?? "").matchAll(/([A-Z_]+)=/g)].map(([, name]) => name);
    expect(names).toEqual(["HOST", "PORT", "STATE_DIRECTORY", "LOG_FORMAT"]);
    expect(SERVE_VARIABLES).toEqual(expect.arrayContaining(names));
  });
});

describe("compose.yaml", () => {
  const gateway = compose.services["responses-edge"];

  it("publishes only Caddy's ports", () => {
    const published = Object.keys(compose.services).filter((name) => compose.services[name].ports);
    expect(published).toEqual(["caddy"]);
    const networks = Object.fromEntries(
      Object.entries<{ networks?: string[]; network_mode?: string }>(compose.services).map(([name, service]) => [
        name,
        service.networks ?? service.network_mode,
      ]),
    );
    expect(networks).toEqual({
      caddy: ["front"],
      "responses-edge": ["front", "models", "search"],
      vllm: ["models"],
      searxng: ["search"],
      backup: "none",
    });
  });

  it("gives the gateway variables that it reads, and lets it stop in its own time", () => {
    for (const name of Object.keys(gateway.environment)) expect(KNOWN).toContain(name);
    expect(Number.parseInt(gateway.stop_grace_period, 10) * 1000).toBeGreaterThan(
      Number(gateway.environment.STOP_TIMEOUT_MS),
    );
  });

  it("runs the documentation's version of vLLM, and lets it and the gateway write only to volumes", () => {
    const [, tried] = /^\| (\d+\.\d+\.\d+) \| `npm run test:vllm`/m.exec(read("docs/vllm.md")) ?? [];
    expect(compose.services.vllm.image).toBe(`vllm/vllm-openai:v${tried}`);
    for (const name of ["vllm", "responses-edge", "caddy", "backup"]) {
      expect(compose.services[name]).toMatchObject({
        read_only: true,
        cap_drop: ["ALL"],
        security_opt: ["no-new-privileges:true"],
      });
    }
  });

  it("has every variable in its example, none of them with a value that would admit a client", () => {
    const used = new Set([...read("deploy/compose.yaml").matchAll(/\$\{([A-Z_]+)/g)].map(([, name]) => name));
    const example = entriesOf("deploy/compose.env.example");
    expect(new Set(example.map(([name]) => name))).toEqual(used);
    expect(example.filter(([, value]) => value !== "")).toEqual([["TELEMETRY_LOG", "errors"]]);
  });
});

describe("the chart", () => {
  const chart = parse(read("deploy/helm/Chart.yaml"));
  const values = parse(read("deploy/helm/values.yaml"));
  const isValid = new Ajv().compile(JSON.parse(read("deploy/helm/values.schema.json")));

  it("has the version of the program", () => {
    expect([chart.version, chart.appVersion]).toEqual([manifest.version, manifest.version]);
  });

  it("has a schema that accepts and names each of its own values", () => {
    expect(isValid(values), JSON.stringify(isValid.errors)).toBe(true);
    const { properties } = JSON.parse(read("deploy/helm/values.schema.json"));
    // `global` is Helm's own, for subcharts.
    const { global: _, ...named } = properties;
    expect(Object.keys(named).toSorted()).toEqual(Object.keys(values).toSorted());
  });

  it.each(["values.yaml", "examples/production-stack.yaml"])(
    "%s gives the process variables that it reads, and no secret",
    (file) => {
      const { env, secrets } = parse(read(`deploy/helm/${file}`));
      for (const name of Object.keys(env)) expect(KNOWN).toContain(name);
      expect(secrets.values ?? {}).toEqual({});
    },
  );
});

describe("responses-edge.service", () => {
  const unit = read("deploy/responses-edge.service");

  it("waits longer for a stop than the program takes", () => {
    const value = (name: string) => Number(new RegExp(`${name}=(\\d+)$`, "m").exec(unit)?.[1]);
    expect(value("TimeoutStopSec") * 1000).toBeGreaterThan(value("STOP_TIMEOUT_MS"));
  });

  it("does not restart the program after errors that a restart does not mend", () => {
    const { usage, noAccess, configuration } = EXIT;
    expect(unit).toContain(`RestartPreventExitStatus=${usage} ${noAccess} ${configuration}\n`);
  });
});
