import { z } from "zod";
import { SECTIONS } from "../../src/config/index.ts";
import type { Section } from "../../src/config/variable.ts";
import { SERVE_SECTIONS } from "./serve-settings.ts";

/** The JSON Schema of the file of `CONFIG_FILE`, for editors, derived from the declarations of the variables. */
export function configSchema(): object {
  const sections: readonly Section[] = [...Object.values(SECTIONS), ...SERVE_SECTIONS];
  const properties = sections.flatMap(({ title, variables }) =>
    Object.values(variables)
      // The file cannot name its own path.
      .filter(({ name }) => name !== "CONFIG_FILE")
      .map(({ name, schema, meaning }) => {
        const { $schema: _, ...described } = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
        return [name.toLowerCase(), { title, description: plain(meaning), ...described }] as const;
      }),
  );
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "The configuration of responses-edge",
    type: "object",
    additionalProperties: false,
    properties: Object.fromEntries(properties),
  };
}

/** A meaning without the links of Markdown, because an editor does not have their pages. */
function plain(meaning: string): string {
  return meaning
    .replaceAll(/ ?\(\[[^\]]*\]\([^)]*\)\)/g, "")
    .replaceAll(/ See \[[^\]]*\]\([^)]*\)[^.]*\./g, "")
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1");
}
