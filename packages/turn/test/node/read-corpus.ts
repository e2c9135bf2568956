import { foundAfter, piecesIn } from "./repetition-corpus.ts";

/** `npm run repetition -- FOLDER…`: the pieces of text in these folders that are taken for repetitions. */
for (const folder of process.argv.slice(2)) {
  let pieces = 0;
  let characters = 0;
  const found = { thought: 0, answer: 0 };
  for (const { source, text } of piecesIn(folder)) {
    pieces += 1;
    characters += text.length;
    for (const kind of ["thought", "answer"] as const) {
      const after = foundAfter(kind, text);
      if (after === undefined) continue;
      found[kind] += 1;
      console.log(`${kind} ${source}+${after}: ${JSON.stringify(text.slice(Math.max(0, after - 80), after))}`);
    }
  }
  const counted = `${pieces} pieces, ${characters} characters`;
  console.log(`${folder}: ${counted}; found as thoughts ${found.thought}, as answers ${found.answer}`);
}
