import { type PackedFile, readPart, type Text } from "./packed-file.ts";
import { type Relation, relationsOf } from "./relations.ts";
import type { XmlSink } from "./xml.ts";

/** The text of what is drawn on a document, a sheet or a slide of Office Open XML: charts with their numbers, diagrams, and shapes of sheets. */

/** Adds the text of the drawings to which a part is related. */
export async function addDrawings(file: PackedFile, relations: readonly Relation[], text: Text): Promise<void> {
  for (const { type, target } of relations) {
    if (type.endsWith("/chart")) await addChart(file, target, text);
    else if (type.endsWith("/diagramData")) await addShapes(file, target, text);
    else if (type.endsWith("/drawing")) {
      await addShapes(file, target, text);
      for (const inner of await relationsOf(file, target)) {
        if (inner.type.endsWith("/chart")) await addChart(file, inner.target, text);
        else if (inner.type.endsWith("/diagramData")) await addShapes(file, inner.target, text);
      }
    }
  }
}

/** The paragraphs of shapes. */
async function addShapes(file: PackedFile, part: string, text: Text): Promise<void> {
  let isText = false;
  let hasText = false;
  let fallbacks = 0;
  await readPart(file, part, {
    open(name) {
      if (name === "t") isText = true;
      else if (name === "Fallback") fallbacks += 1;
    },
    close(name) {
      if (name === "t") isText = false;
      else if (name === "Fallback") fallbacks -= 1;
      else if (name === "p" && hasText) {
        text.add("\n");
        hasText = false;
      }
    },
    text(piece) {
      if (!isText || fallbacks > 0) return;
      if (!hasText) text.add("\n");
      hasText = true;
      text.add(piece);
    },
  });
}

/** A chart: its title, then a line for each series, with the names and the numbers of its points. */
async function addChart(file: PackedFile, part: string, text: Text): Promise<void> {
  await readPart(file, part, chartSink(text, file));
}

/** Lists of a series: its name, the names of its points, and their numbers (ECMA-376 part 1, 21.2). */
const LISTS: Readonly<Record<string, "name" | "points" | "values">> = {
  ...{ tx: "name", cat: "points", xVal: "points", val: "values", yVal: "values" },
};

function chartSink(text: Text, { limits }: PackedFile): XmlSink {
  let series: Record<"name" | "points" | "values", string[]> | undefined;
  let list: "name" | "points" | "values" | undefined;
  let isValue = false;
  let isTitle = false;
  let value = "";
  let values = 0;
  return {
    open(name) {
      if (name === "ser") series = { name: [], points: [], values: [] };
      else if (series && LISTS[name]) list = LISTS[name];
      else if (name === "v") {
        isValue = true;
        value = "";
      } else if (name === "t") {
        if (!isTitle) text.add("\n");
        isTitle = true;
      }
    },
    close(name) {
      if (name === "v") {
        isValue = false;
        values += 1;
        if (series && list && values < limits.maxEntries * 10) series[list].push(value);
      } else if (name === "t") isTitle = false;
      else if (LISTS[name]) list = undefined;
      else if (name === "ser" && series) {
        const { name: names, points, values: numbers } = series;
        const shown = numbers.map((number, at) => [points[at] ?? "", number].join(" ").trim());
        text.add(`\n${[names.join(" ") || "series", shown.join(", ")].join(": ")}\n`);
        series = undefined;
      }
    },
    text(piece) {
      if (isTitle) text.add(piece);
      else if (isValue && value.length < MAX_VALUE) value += piece;
    },
  };
}

/** UTF-16 units of a point's name that are kept. */
const MAX_VALUE = 1_024;
