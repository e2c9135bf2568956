import { type PackedFile, readPart } from "./packed-file.ts";

/** A part of an Office Open XML file, or a URL, to which another part refers (ECMA-376 part 2, 6.5). */
export interface Relation {
  id: string;
  type: string;
  /** The whole name of a part, or the URL that it is outside the file. */
  target: string;
  isExternal: boolean;
}

/** The relations of a part, such as `xl/workbook.xml`. */
export async function relationsOf(file: PackedFile, part: string): Promise<Relation[]> {
  const folder = part.slice(0, Math.max(0, part.lastIndexOf("/")));
  const name = part.slice(part.lastIndexOf("/") + 1);
  const relations: Relation[] = [];
  await readPart(file, `${folder}/_rels/${name}.rels`, {
    open(element, attributes) {
      if (element !== "Relationship" || relations.length > file.limits.maxEntries) return;
      const [id = "", type = "", given = ""] = [attributes("Id"), attributes("Type"), attributes("Target")];
      const isExternal = attributes("TargetMode") === "External";
      relations.push({ id, type, target: isExternal ? given : whole(folder, given), isExternal });
    },
    close() {},
    text() {},
  });
  return relations;
}

function whole(folder: string, target: string): string {
  const path = target.split("/");
  const names = path[0] === "" ? [] : folder.split("/");
  for (const step of path) {
    if (step === "..") names.pop();
    else if (step !== "" && step !== ".") names.push(step);
  }
  return names.join("/");
}

/** The targets of a part's links by their ids. */
export async function linksOf(file: PackedFile, part: string): Promise<ReadonlyMap<string, string>> {
  const relations = await relationsOf(file, part);
  const links = relations.filter(({ type, isExternal }) => isExternal && type.endsWith("/hyperlink"));
  return new Map(links.map(({ id, target }) => [id, target]));
}
