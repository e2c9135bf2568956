/** Writes `dist/o200k_base.tiktoken.gz`, the vocabulary of gpt-oss. Any Node that wrangler runs on runs this. */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";

const target = fileURLToPath(new URL("dist/o200k_base.tiktoken.gz", import.meta.url));

/** Writes the file, unless it is there. Another process may read it meanwhile. */
export function buildVocabulary() {
  const source = readFileSync(new URL(import.meta.resolve("gpt-tokenizer/data/o200k_base.tiktoken")));
  const bytes = gzipSync(source, { level: 9 });
  if (existsSync(target) && readFileSync(target).equals(bytes)) return;
  mkdirSync(fileURLToPath(new URL("dist", import.meta.url)), { recursive: true });
  writeFileSync(`${target}.${process.pid}`, bytes);
  renameSync(`${target}.${process.pid}`, target);
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) buildVocabulary();
