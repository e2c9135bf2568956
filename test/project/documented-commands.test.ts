import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { checkPlatform } from "../../cli/serve/installation.ts";

/**
 * Commands in documentation and comments run with the Node that the project installs, independent of the reader's Node.
 */

const root = new URL("../../", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL("package.json", root), "utf8")) as {
  engines: { node: string };
  scripts: Record<string, string>;
  devDependencies: Record<string, string>;
};

/** All committed documentation, and all sources because of their comments. */
const texts = execFileSync("git", ["ls-files", "*.md", "*.ts", "*.js", "*.sh", "*.yml", "*.yaml"], {
  cwd: root,
  encoding: "utf8",
})
  .split("\n")
  .filter((path) => path !== "")
  .map((path) => ({ path, text: readFileSync(new URL(path, root), "utf8") }));
const documents = texts.filter(({ path }) => path.endsWith(".md"));

function found(within: typeof texts, pattern: RegExp): string[] {
  return within.flatMap(({ path, text }) => [...text.matchAll(pattern)].map(([told]) => `${path}: ${told.trim()}`));
}

it("run no TypeScript with the reader's own Node, which may not support it", () => {
  expect(found(texts, /(?<!npx )\bnode (?:--?[\w=-]+ )*[\w./-]+\.ts\b/g)).toEqual([]);
});

it("run only existing scripts", () => {
  const scripts = documents.flatMap(({ path, text }) =>
    [...text.matchAll(/\bnpm (?:run )?((?:start|test)\b(?!:)|(?<=run )[a-z][\w:-]*)/g)].map(([, name = ""]) => ({
      path,
      name,
    })),
  );
  expect(scripts.length).toBeGreaterThan(20);
  expect(scripts.filter(({ name }) => !(name in manifest.scripts))).toEqual([]);
});

it("that serve reach Node in cmd.exe, which has no `exec`; Node then says how to run them on Windows", () => {
  for (const name of ["start", "serve"]) expect(manifest.scripts[name]).toMatch(/^exec (node .+) \|\| \1$/);
  expect(() => checkPlatform("win32")).toThrow(/Run it in WSL/);
  expect(() => checkPlatform("linux")).not.toThrow();
});

it("need the Node of package.json by README, and run with the installed one", () => {
  const readme = readFileSync(new URL("README.md", root), "utf8");
  const least = manifest.engines.node.replace(">=", "");
  const installed = manifest.devDependencies.node?.split(".")[0];
  expect(readme).toContain(`You need Node ${least} or later and npm`);
  expect(readme).toContain(`\`npm ci\` installs the Node ${installed} that the project's scripts run with`);
  expect(readme).toContain(`Node ${installed} or later for the [npm package]`);
});
