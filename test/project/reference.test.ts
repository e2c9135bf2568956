import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { HOSTED_TYPES } from "@responses-edge/responses-api/hosted-tools";
import { expect, it } from "vitest";
import { root } from "../workerd/tools.ts";

it("docs/reference/ agrees with the declarations of endpoints, fields and variables", () => {
  execFileSync(process.execPath, [join(root, "scripts/reference.ts"), "--check"], { stdio: "pipe" });
});

it("every hosted tool is in the table of docs/tools.md, and in the console's form", () => {
  const [table = ""] = /^\| Request \|[\s\S]*?\n\n/m.exec(readFileSync(join(root, "docs/tools.md"), "utf8")) ?? [];
  const [form, body] = ["request-tools.ts", "request-body.ts"].map((file) =>
    readFileSync(join(root, "packages/console/src", file), "utf8"),
  );
  const absent = (text: string) => HOSTED_TYPES.filter((name) => !new RegExp(`\\W${name}\\W`).test(text));
  expect(absent(table)).toEqual([]);
  expect(absent(`${form}${body}`)).toEqual([]);
});

/** GitHub's anchors of a page's headings. */
function anchorsIn(text: string): Set<string> {
  const headings = [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) => heading);
  return new Set(
    headings.map((heading) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N}\s_-]/gu, "")
        .replaceAll(" ", "-"),
    ),
  );
}

it("links of the documentation lead to existing pages and headings", () => {
  const pages = execFileSync("git", ["ls-files", "*.md"], { cwd: root, encoding: "utf8" }).trim().split("\n");
  const dead = pages.flatMap((page) => {
    const text = readFileSync(join(root, page), "utf8");
    const links = [...text.matchAll(/\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]*))?\)/g)];
    return links.flatMap(([link, path = "", anchor]) => {
      const target = path === "" ? page : join(dirname(page), path);
      if (!existsSync(join(root, target))) return [`${page}: ${link}`];
      if (anchor === undefined || !target.endsWith(".md")) return [];
      return anchorsIn(readFileSync(join(root, target), "utf8")).has(anchor) ? [] : [`${page}: ${link}`];
    });
  });
  expect(dead).toEqual([]);
});
