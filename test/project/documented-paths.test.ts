import { existsSync, globSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { root } from "../workerd/tools.ts";

/** The paths in pages for contributors: from the checkout, from `src`, or beside another path of the same line. */

const PAGES = ["docs/code-map.md", "docs/architecture.md", "CONTRIBUTING.md"];

/** A path from the checkout. */
const WHOLE = /^(?:src|packages|test|cli|dev|docs|scripts|deploy)\//;

function isThere(path: string): boolean {
  return path.includes("*") ? globSync(path, { cwd: root }).length > 0 : existsSync(join(root, path));
}

function linesOf(page: string): string[] {
  return readFileSync(join(root, page), "utf8").split("\n");
}

/** The words between backticks in a line that look like paths. Addresses of the API begin with a slash. */
function pathsIn(line: string): string[] {
  return [...line.matchAll(/`([^`]+)`/g)]
    .flatMap(([, words = ""]) => words.split(/\s+/))
    .filter((word) => /^[\w@.*/-]+$/.test(word) && !word.startsWith("/"))
    .filter((word) => WHOLE.test(word) || /\.(?:ts|js|json|toml|md|css|html|sh|ya?ml)$|\/$/.test(word))
    .map((word) => word.replace(/\/$/, ""));
}

/** The folders of a line's paths, with the paths that are folders themselves. */
function foldersOf(paths: readonly string[]): string[] {
  return paths
    .filter((path) => path.includes("/"))
    .flatMap((path) => [path, join("src", path)])
    .flatMap((path) => [path, join(path, "src"), join(path, "..")]);
}

function missingIn(line: string): string[] {
  const paths = pathsIn(line);
  const folders = ["", "src", ...foldersOf(paths)];
  return paths.filter((path) => !folders.some((folder) => isThere(join(folder, path))));
}

/** The anchor that GitHub gives a heading. */
function anchorOf(heading: string): string {
  const text = heading
    .replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .trim()
    .toLowerCase();
  return text.replace(/[^\p{L}\p{N}_\- ]/gu, "").replaceAll(" ", "-");
}

/** The links of a page that lead to no file, or to no heading of another page. */
function deadLinksOf(page: string): string[] {
  const links = [...readFileSync(join(root, page), "utf8").matchAll(/\]\((?!\w+:)([^)\s]+)\)/g)];
  return links
    .map(([, link = ""]) => link)
    .filter((link) => {
      const [path = "", anchor] = link.split("#");
      const target = path === "" ? page : join(page, "..", path);
      if (!isThere(target)) return true;
      if (!anchor || !target.endsWith(".md")) return false;
      const headings = readFileSync(join(root, target), "utf8").matchAll(/^#+ (.*)$/gm);
      return ![...headings].some(([, heading = ""]) => anchorOf(heading) === anchor);
    })
    .map((link) => `${page}: ${link}`);
}

describe("the paths", () => {
  it.each(PAGES)("in %s exist", (page) => {
    const lines = linesOf(page);
    expect(lines.flatMap(pathsIn).length).toBeGreaterThan(5);
    expect(lines.flatMap(missingIn)).toEqual([]);
  });

  it("from the checkout in the other pages exist", () => {
    const pages = ["README.md", "SECURITY.md", ...globSync("docs/**/*.md", { cwd: root })];
    const missing = pages.flatMap((page) =>
      linesOf(page)
        .flatMap(pathsIn)
        .filter((path) => WHOLE.test(path) && !isThere(path))
        .map((path) => `${page}: ${path}`),
    );
    expect(missing).toEqual([]);
  });

  it("and headings of links exist", () => {
    const pages = globSync(["*.md", "{cli,docs,dev}/**/*.md", "packages/*/*.md"], { cwd: root });
    expect(pages.length).toBeGreaterThan(40);
    expect(pages.flatMap(deadLinksOf)).toEqual([]);
  });

  it("of all packages are in architecture.md", () => {
    const page = readFileSync(join(root, "docs/architecture.md"), "utf8");
    const packages = readdirSync(join(root, "packages"));
    expect(packages.filter((name) => !new RegExp(`\\b${name}\\b`).test(page))).toEqual([]);
  });
});
