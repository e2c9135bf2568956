/**
 * Writes `dist/o200k_base.gz`, the vocabulary of gpt-oss: the length of each token in a byte and its bytes, in the order of their ids. It
 * takes three fifths of the lines of base64 of which it is made. Any Node that wrangler runs on runs this.
 */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";

const target = fileURLToPath(new URL("dist/o200k_base.gz", import.meta.url));

/** Writes the file, unless it is there. Another process may read it meanwhile. */
export function buildVocabulary() {
  const source = readFileSync(new URL(import.meta.resolve("gpt-tokenizer/data/o200k_base.tiktoken")));
  const tokens = source.toString("latin1").trimEnd().split("\n");
  const packed = tokens.flatMap((line) => {
    const token = Buffer.from(line.slice(0, line.indexOf(" ")), "base64");
    return [Buffer.of(token.length), token];
  });
  const bytes = gzipSync(Buffer.concat(packed), { level: 9 });
  if (existsSync(target) && readFileSync(target).equals(bytes)) return;
  mkdirSync(fileURLToPath(new URL("dist", import.meta.url)), { recursive: true });
  writeFileSync(`${target}.${process.pid}`, bytes);
  renameSync(`${target}.${process.pid}`, target);
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) buildVocabulary();
