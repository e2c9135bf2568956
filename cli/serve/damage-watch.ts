import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Suspect } from "../../src/store/objects/process-state.ts";
import { OBJECTS } from "../../src/store/objects/registry.ts";
import { damageIn } from "../tools/alarm-lists.ts";
import { type LogFormat, ownLine } from "./log-lines.ts";
import { uniqueKeyOf } from "./workerd.ts";

/** Finds the damaged file: workerd reports damage, but not the object. */

/** The words that workerd and the Worker (`src/store/objects/damage.ts`) have for damage. */
const DAMAGE_WORDS = /SQLITE_(?:CORRUPT|NOTADB)|"event":"object_suspected"/;

/** Its words for a full disk, which are logged at most once an hour. */
const FULL_WORDS = /SQLITE_FULL|No space left on device/;
const TOLD_EVERY_MS = 3_600_000;

/** The interval at which the Worker is asked for suspected objects, after a message of workerd. */
const POLLS = 20;
const POLL_MS = 100;

export interface DamageWatch {
  /** The damaged files that it has named. */
  files: ReadonlySet<string>;
  /** Takes a line of workerd's log. */
  heard(line: string): void;
}

/**
 * Watches workerd's messages. `suspects` asks the Worker which objects have failed; `tell` tells it which of these are
 * damaged. `say` names each damaged file once.
 */
export function watchDamage(
  data: string,
  format: LogFormat,
  worker: { suspects(): Promise<readonly Suspect[]>; tell(damaged: readonly Suspect[]): Promise<unknown> },
  say: (line: string) => void,
): DamageWatch {
  const named = new Set<string>();
  let toldFullAt = 0;
  let looksLeft = 0;
  const look = async () => {
    for (; looksLeft > 0; looksLeft -= 1) {
      const suspects = await worker.suspects().catch(() => []);
      const damaged = suspects.filter(isDamaged);
      if (damaged.length > 0) await worker.tell(damaged).catch(() => {});
      await sleep(POLL_MS, undefined, { ref: false });
    }
  };
  const isDamaged = ({ binding, id, tenant }: Suspect) => {
    const className = OBJECTS[binding].className;
    const file = join(data, uniqueKeyOf(className), `${id}.sqlite`);
    const fault = existsSync(file) ? damageIn(file) : undefined;
    if (fault === undefined) return false;
    if (!named.has(file)) say(damageLine(file, { className, tenant, fault }, format));
    named.add(file);
    return true;
  };
  return {
    files: named,
    heard(line) {
      if (FULL_WORDS.test(line) && Date.now() - toldFullAt >= TOLD_EVERY_MS) {
        toldFullAt = Date.now();
        const meaning = "The disk of the data folder is full. Nothing is stored until it has space.";
        say(ownLine("error", meaning, format, { event: "disk_unwritable" }));
      }
      if (!DAMAGE_WORDS.test(line)) return;
      const isLooking = looksLeft > 0;
      looksLeft = POLLS;
      if (!isLooking) void look();
    },
  };
}

function damageLine(
  file: string,
  { className, tenant, fault }: { className: string; tenant: string | undefined; fault: string },
  format: LogFormat,
): string {
  const [name, folder] = [basename(file), basename(dirname(file))];
  const whose = tenant === undefined ? className : `${className}, tenant ${tenant}`;
  const words = `An object's file is damaged: ${folder}/${name} (${whose}). \`responses-edge quarantine\` puts it aside.`;
  return ownLine("error", words, format, {
    event: "object_damaged",
    file: `${folder}/${name}`,
    class: className,
    ...(tenant !== undefined && { tenant }),
    fault,
  });
}
