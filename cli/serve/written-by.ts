import { SCHEMA_VERSIONS } from "../../src/store/objects/registry.ts";
import { version } from "./installation.ts";
import { EXIT, Refusal } from "./refusal.ts";

/** The versions that wrote a data folder or a backup. They are checked before anything else of it is read. */

/** The form of a folder's marker and of a backup's manifest. 1 and none are those of before the first release. */
export const FORMAT = 2;

/** The versions of what was written: of its form, of the program that wrote it, and of the tables of each class. */
export interface WrittenBy {
  format: number;
  version: string;
  schema: Readonly<Record<string, number>>;
}

/** Throws a Refusal if this program cannot read what `by` wrote. `what` names it: "The data folder /data". */
export function checkWrittenBy(by: WrittenBy, what: string): void {
  checkFormat(by.format, what);
  const newer = Object.entries(by.schema).filter(([name, number]) => number > (SCHEMA_VERSIONS[name] ?? 0));
  if (newer.length === 0) return;
  const schema = newer.map(([name, number]) => `${name} ${number}, known here up to ${SCHEMA_VERSIONS[name] ?? 0}`);
  throw new Refusal(
    EXIT.configuration,
    `${what} was written by responses-edge ${by.version}, which is newer than this one (${version}).`,
    `Its schema: ${schema.join("; ")}. Start that version again, or restore a backup from before it.`,
  );
}

/** Throws a Refusal for the form of another version. */
export function checkFormat(format: number, what: string): void {
  if (format === FORMAT) return;
  throw new Refusal(
    EXIT.configuration,
    format < FORMAT
      ? `${what} was written before the first release of responses-edge, and no version reads it any more.`
      : `${what} was written by a newer version of responses-edge than this one (${version}).`,
  );
}
