import { describe, expect, it } from "vitest";
import readme from "../../README.md?raw";
import { VARIABLE_NAMES } from "../../src/config/index.ts";
import { endpoints } from "../../src/http/endpoints.ts";

/** The rows of the table under a heading, as their cells. */
function tableUnder(heading: string): string[][] {
  const [, section = ""] = readme.split(`\n## ${heading}\n`);
  const [body = ""] = section.split("\n## ");
  return body
    .split("\n")
    .filter((line) => line.startsWith("| `"))
    .map((line) => line.split(/(?<!\\)\|/).slice(1, -1))
    .map((cells) => cells.map((cell) => cell.trim()));
}

describe("README", () => {
  it("has a row for every endpoint, with its own summary", () => {
    const declared = endpoints.map(({ method, path, summary }) => {
      const named = path.replaceAll(/:(\w+)(\{[^}]*\})?/g, "{$1}");
      return [`\`${method} ${named}\``, summary];
    });
    expect(tableUnder("Endpoints")).toEqual(declared);
  });

  it("has every variable in its table, and no other", () => {
    const named = tableUnder("Configuration").flatMap(([names = ""]) => names.replaceAll("`", "").split(", "));
    expect(named.toSorted()).toEqual([...VARIABLE_NAMES].toSorted());
  });
});
