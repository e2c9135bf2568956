/**
 * `npm run quality:files`: prints a table of the share of right words and numbers that this reader and others give of the corpus
 * (`corpus/`). PYTHON names a Python with the packages of `corpus/requirements.txt`; Debian's `poppler-utils` has `pdftotext`. This
 * reader runs in Node here, from the same code as in the Worker.
 */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { fileURLToPath } from "node:url";
import { casesOf, numbersOf, shared, wordsOf } from "../../packages/file-text/test/right-text.ts";

// Wrangler gives the Worker its data as buffers; Node has no such modules.
registerHooks({
  load(url, context, next) {
    if (!url.endsWith(".bin")) return next(url, context);
    const bytes = JSON.stringify(fileURLToPath(url));
    const source = `import { readFileSync } from "node:fs"; export default new Uint8Array(readFileSync(${bytes})).buffer;`;
    return { format: "module", shortCircuit: true, source };
  },
});
const { textOf } = await import("../../packages/file-text/src/index.ts");

const archive = fileURLToPath(new URL("../../packages/file-text/test/corpus.bin", import.meta.url));
const cases = casesOf(readFileSync(archive)).filter(({ about }) => about.error === null);
type Texts = Record<string, string>;

async function ownTexts(): Promise<Texts> {
  const texts: Texts = {};
  for (const { about, bytes } of cases) {
    const pages = await Array.fromAsync(textOf(bytes, { ...about, mimeType: about.mimeType ?? undefined }));
    texts[about.path] = pages.map(({ text }) => text).join("\n");
  }
  return texts;
}

const script = fileURLToPath(new URL("readers.py", import.meta.url));
const output = execFileSync(process.env.PYTHON ?? "python3", ["-W", "ignore", script, archive], { maxBuffer: 1 << 28 });
const others = JSON.parse(output.toString()) as { versions: Record<string, string>; texts: Record<string, Texts> };
const readers: Record<string, Texts> = { "responses-edge": await ownTexts(), ...others.texts };

/** Right pieces that a reader gives of the cases, as a percentage; undefined if it reads none of them. */
function share(texts: Texts, of: typeof cases, pieces: (text: string) => string[]): string {
  let [right, all] = [0, 0];
  for (const { about } of of) {
    const given = texts[about.path];
    if (given === undefined) continue;
    const expected = pieces(about.text);
    all += expected.length;
    right += shared(expected, pieces(given));
  }
  return all === 0 ? "–" : ((100 * right) / all).toFixed(1);
}

const row = (name: string, of: typeof cases) => {
  const cells = Object.values(readers).map((texts) =>
    [share(texts, of, wordsOf), share(texts, of, numbersOf)].join(" / ").replace("– / –", "–"),
  );
  return `| ${[name, of.length, ...cells].join(" | ")} |`;
};
const names = Object.keys(readers).map((name) => [name, others.versions[name]].filter(Boolean).join(" "));
console.log(`| Group | files | ${names.join(" | ")} |\n|---|---:|${"---:|".repeat(names.length)}`);
for (const group of new Set(cases.map(({ about }) => about.group))) {
  const own = cases.filter(({ about }) => about.group === group);
  console.log(row(group, own));
}
console.log(
  row(
    "**all PDFs**",
    cases.filter(({ about }) => about.path.endsWith(".pdf")),
  ),
);
console.log(row("**all files**", cases));
