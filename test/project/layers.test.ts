import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { root } from "../workerd/tools.ts";

/**
 * Imports go from each layer to lower layers (docs/architecture.md). Each layer of `src`, with the layers that it may
 * import.
 */
const BASE = ["config", "contract"];
const LAYERS: Record<string, readonly string[]> = {
  config: [],
  contract: ["config"],
  tools: BASE,
  telemetry: BASE,
  assembly: [...BASE, "tools"],
  store: [...BASE, "telemetry", "assembly"],
  api: [...BASE, "telemetry", "assembly", "store"],
  socket: [...BASE, "telemetry", "assembly", "store", "api"],
  batches: [...BASE, "telemetry", "assembly", "store", "api"],
  http: [...BASE, "telemetry", "assembly", "store", "api", "socket", "batches"],
};

/** The files below a folder of the checkout, by their paths in it. */
function filesIn(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((path) => /\.[jt]s$/.test(path))
    .map((path) => join(folder, path));
}

/** The specifiers that a file imports. Imports come first in a file. Later matches are in texts. */
function importsOf(file: string): string[] {
  const text = readFileSync(join(root, file), "utf8");
  const [head = ""] = text.split(/^(?:export )?(?:const|let|class|(?:async )?function)\b/m, 1);
  const dynamic = [...text.matchAll(/\bimport\("([^"\n]+)"\)/g)].map(([, name = ""]) => name);
  const stated = [...head.matchAll(/^(?:(?:import|export)\b.*? from|\} from|import) "([^"\n]+)"/gm)];
  return [...stated.map(([, name = ""]) => name), ...dynamic];
}

/** The layer of a file of `src`. A file outside the layers, such as `src/config.ts`, has its own name as its layer. */
function layerOf(file: string): string {
  const [first = ""] = relative("src", file).split("/");
  return first.replace(/\.ts$/, "");
}

/** True of what the turn has besides its contract. */
function isOfTheTurn(specifier: string): boolean {
  return specifier.startsWith("@responses-edge/turn/") && !specifier.startsWith("@responses-edge/turn/contract/");
}

describe("a layer of src", () => {
  it.each(Object.keys(LAYERS))("%s imports only its permitted layers", (layer) => {
    const allowed = [layer, "env", ...(LAYERS[layer] ?? [])];
    const refused = filesIn("src")
      .filter((file) => layerOf(file) === layer)
      .flatMap((file) => {
        const imported = importsOf(file).filter((specifier) => specifier.startsWith("."));
        const files = imported.map((specifier) => relative(root, resolve(root, dirname(file), specifier)));
        return files.flatMap((other) =>
          other.startsWith("src/") && !allowed.includes(layerOf(other)) ? `${file} imports ${other}` : [],
        );
      });
    expect(refused).toEqual([]);
  });

  it.each(["src/tools", "packages/engines/src", "packages/turn/src/contract"])(
    "%s knows of the turn only its contract",
    (folder) => {
      const refused = filesIn(folder).flatMap((file) =>
        importsOf(file).flatMap((specifier) => (isOfTheTurn(specifier) ? `${file} imports ${specifier}` : [])),
      );
      expect(refused).toEqual([]);
    },
  );

  it("has files of at most 400 lines, as packages do", () => {
    const lines = (file: string) => readFileSync(join(root, file), "utf8").split("\n").length - 1;
    const packages = readdirSync(join(root, "packages")).map((name) => `packages/${name}/src`);
    const files = ["src", ...packages].flatMap(filesIn).filter((file) => file.endsWith(".ts"));
    expect(files.filter((file) => lines(file) > 400)).toEqual([]);
  });

  it("is named here", () => {
    const layers = new Set(filesIn("src").map(layerOf));
    expect([...layers].filter((layer) => !(layer in LAYERS)).toSorted()).toEqual(["env", "index"]);
  });
});

it("objects set their alarms by one function, since workerd loses some of those that are set otherwise", () => {
  const files = filesIn("src").filter((file) => /storage\.setAlarm\(/.test(readFileSync(join(root, file), "utf8")));
  expect(files).toEqual(["src/store/objects/alarms.ts"]);
});

describe("a package", () => {
  const packages = readdirSync(join(root, "packages"));

  it.each(packages)("%s imports itself, and the packages that it names as its dependencies", (name) => {
    const folder = `packages/${name}`;
    const { dependencies = {}, imports = {} } = JSON.parse(
      readFileSync(join(root, folder, "package.json"), "utf8"),
    ) as { dependencies?: Record<string, string>; imports?: Record<string, string> };
    const refused = filesIn(`${folder}/src`).flatMap((file) =>
      importsOf(file).flatMap((specifier) => {
        const isOwn = specifier.startsWith(".") && !relative(folder, join(dirname(file), specifier)).startsWith("..");
        const isKnown =
          isOwn ||
          Object.hasOwn(imports, specifier) ||
          Object.keys(dependencies).some((name) => `${specifier}/`.startsWith(`${name}/`)) ||
          /^(node|cloudflare):/.test(specifier);
        return isKnown ? [] : `${file} imports ${specifier}`;
      }),
    );
    expect(refused).toEqual([]);
  });

  it.each(packages)("%s is tested without src", (name) => {
    if (!existsSync(join(root, "packages", name, "test"))) return;
    const imported = filesIn(`packages/${name}/test`).flatMap(importsOf);
    expect(imported.filter((specifier) => /(^|\/)src\//.test(specifier))).toEqual([]);
  });

  it.each(packages)("%s has a README with its purpose", (name) => {
    expect(readFileSync(join(root, "packages", name, "README.md"), "utf8")).toContain(`# @responses-edge/${name}\n`);
  });

  it.each(packages)("%s can be published by itself: it has exports, a list of files, and tests of its own", (name) => {
    const folder = join(root, "packages", name);
    const described = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as {
      private?: boolean;
      exports?: string | Record<string, string>;
      files?: string[];
    };
    // The console is a page, and its tests need a browser.
    if (described.private) return;
    const { exports = {}, files } = described;
    const targets = typeof exports === "string" ? [exports] : Object.values(exports);
    expect(targets).not.toEqual([]);
    expect(targets.filter((target) => !existsSync(join(folder, target.replace(/\*.*$/, ""))))).toEqual([]);
    expect(files).toContain("src");
    expect(filesIn(join("packages", name, "test")).some((file) => file.endsWith(".test.ts"))).toBe(true);
  });
});
