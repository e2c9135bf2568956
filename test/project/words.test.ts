import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { root } from "../workerd/tools.ts";

/** The words that docs/glossary.md avoids. */

const SOURCES = ["src", "cli", "scripts", "packages"];

/** The files of folders, by paths in the checkout. */
const filesIn = (folders: readonly string[]) =>
  folders.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: "utf8" }).map((path) => join(folder, path)),
  );

/** The shipped files, the tools for development and the documentation. */
const files = filesIn([...SOURCES, "dev", "docs"])
  .concat("README.md", "CONTRIBUTING.md")
  .filter((path) => /\.(ts|js|md)$/.test(path) && !/\/dist\/|\/node_modules\//.test(path))
  .filter((path) => path !== "docs/glossary.md");

const code = files.filter(
  (path) => SOURCES.some((folder) => path.startsWith(`${folder}/`)) && !/\.md$|\/test\//.test(path),
);

/** All code with comments, also that of tests and tools. */
const commented = filesIn([...SOURCES, "dev", "test"]).filter(
  (path) => /\.(ts|js)$/.test(path) && !/\/dist\/|\/node_modules\//.test(path),
);

/** Committed files whose comments begin with `#`. */
const MARKS = ["*.yaml", "*.yml", "*.py", "*.sh", "*.toml", "*.example", "*.service", "*Dockerfile", "*.tpl"];
const marked = execFileSync("git", ["ls-files", ...MARKS], { cwd: root, encoding: "utf8" })
  .trim()
  .split("\n");

/** The comments of such a file, each on one line. */
function markedIn(text: string): string[] {
  return [...text.matchAll(/(?:^[ \t]*#.*(?:\n|$))+/gm)].map(([lines]) =>
    lines
      .replace(/^[ \t]*#+/gm, " ")
      .replace(/\s+/g, " ")
      .trim(),
  );
}

/** Code without its comments and without the texts in it. */
function namesOf(code: string): string {
  return code.replace(/\/\*[\s\S]*?\*\/|\/\/.*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\$]|\\.)*`/g, " ");
}

/** The texts of the comments in code, each on one line. The marks of tags (`@param x`) count as the end of a sentence. */
function commentsOf(code: string): string[] {
  const tokens =
    /\/\*[\s\S]*?\*\/|(?:^[ \t]*\/\/.*\n)+|(?<![:\\/])\/\/.*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\$]|\\.)*`/gm;
  return [...code.matchAll(tokens)]
    .filter(([token]) => /^\s*\/[/*]/.test(token))
    .map(([token]) =>
      token
        .replace(/^[ \t]*(?:\/\*\*?|\/\/+|\*\/|\*)|\*\//gm, " ")
        .replace(/@(?:param|property|typedef|returns?|throws)\s+(?:\{.*?\}(?= ))?\s*\S+\s/g, ". ")
        .replace(/\s+/g, " ")
        .trim(),
    );
}

/** Where a pattern is found, as `file: what`. */
function found(paths: readonly string[], pattern: RegExp, read: (text: string) => string): string[] {
  return paths.flatMap((path) =>
    [...read(readFileSync(join(root, path), "utf8")).matchAll(pattern)].map(([word]) => `${path}: ${word}`),
  );
}

describe("the words", () => {
  it("that the glossary marks with * are nowhere", () => {
    const glossary = readFileSync(join(root, "docs/glossary.md"), "utf8");
    expect([...glossary.matchAll(/(?<!\*)\b(\w+)\*(?!\*)/g)].map(([, word]) => word)).toEqual([
      "floor",
      "door",
      "house",
    ]);
    // A call of `floor(` rounds down.
    const words = /\b(?:floors?|doors?|houses?)\b(?!\()/gi;
    expect(found(files, words, (text) => text)).toEqual([]);
  });

  it("that it avoids at the beginning of a sentence begin none in the code's comments", () => {
    const glossary = readFileSync(join(root, "docs/glossary.md"), "utf8");
    const [, list = ""] = /\| ([\w, ]+) at the beginning of a comment's sentence \|/.exec(glossary) ?? [];
    const words = list.split(", ");
    expect(words).toContain("What");
    const beginning = new RegExp(`(?:^|[.!?][)"'\`]* )(?:${words.join("|")})\\b.{0,60}`, "g");
    const refusedIn = (paths: readonly string[], read: (text: string) => string[]) =>
      paths.flatMap((path) =>
        read(readFileSync(join(root, path), "utf8")).flatMap((comment) =>
          [...comment.matchAll(beginning)].map(([sentence]) => `${path}: ${sentence}`),
        ),
      );
    expect(refusedIn(commented, commentsOf)).toEqual([]);
    expect(refusedIn(marked, markedIn)).toEqual([]);
    expect(markedIn("a: 1\n# One fact.\n# What is\nb: 2\n  # Next")).toEqual(["One fact. What is", "Next"]);
    expect(commentsOf("/**\n * One fact.\n * What is\n * @param x Whether so. */")).toEqual([
      "One fact. What is . Whether so.",
    ]);
  });

  it("that it avoids are in no name of the code", () => {
    const words =
      /\b(?:\w*Rooms?\b|rooms?\b|rooms?[A-Z]\w*|\w*[tT]oolset\w*|\w*(?<!Mcp|mcp)ServerTools?\b|serverTools?\b)\w*/g;
    expect(found(code, words, namesOf)).toEqual([]);
  });
});
