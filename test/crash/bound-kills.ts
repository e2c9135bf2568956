import { startFleet } from "../e2e/fleet.ts";
import { alike, BOUND_REQUESTS, boundTextOf, MARKUP, streamOf } from "./bound-answers.ts";
import { killReal, REAL_SERVERS, type Tally } from "./real-bound-kills.ts";

/**
 * `npm run bound-kills -- ANSWERS`: lets one of two model servers die in the middle of bound answers and calls, after every
 * character of each, until there are so many answers. Prints their counts; ends with 1 when one is not valid, or has lost,
 * repeated or changed what was shown. `npm run bound-kills -- ANSWERS SERVER [SEED]` breaks off answers of a real server
 * after random bytes.
 */

const ANSWERS = Number(process.argv[2] ?? 1_000);
const AT_ONCE = 16;

const real = REAL_SERVERS.find((name) => name === process.argv[3]);
if (real) {
  const seed = Number(process.argv[4] ?? 1);
  report(await killReal(real, ANSWERS, seed));
  process.exit();
}

const fleet = await startFleet({ servers: { a: {}, b: {} } });
const failures: string[] = [];
let answers = 0;
let deaths = 0;

/** Creates the response of a request; each model server dies once, after so many of its characters. */
async function killed(request: (typeof BOUND_REQUESTS)[number], whole: string, after: number): Promise<void> {
  const events = await streamOf(fleet, request, `fault=cut:${after}&fault_times=1`);
  answers += 1;
  const where = `${request.model}, ${request.kind}, after ${after}`;
  try {
    const text = boundTextOf(events, request);
    if (!request.isValid(text)) failures.push(`${where}: not valid: ${text}`);
    if (alike(text, whole) < Math.min(whole.length, after) - MARKUP) failures.push(`${where}: changed: ${text}`);
  } catch (error) {
    failures.push(`${where}: ${String(error)}`);
  }
}

const wholes = new Map<(typeof BOUND_REQUESTS)[number], string>();
for (const request of BOUND_REQUESTS) wholes.set(request, boundTextOf(await streamOf(fleet, request, ""), request));
let lasting = [...wholes];
for (let from = 1; answers < ANSWERS && lasting.length > 0; from += AT_ONCE) {
  lasting = lasting.filter(([, whole]) => from <= whole.length + MARKUP);
  for (const [request, whole] of lasting) {
    // A server counts its deaths by the settings of requests.
    fleet.clear();
    await Promise.all(Array.from({ length: AT_ONCE }, (_, index) => killed(request, whole, from + index)));
    deaths += fleet.replicas.flatMap((replica) => replica.asked).length - AT_ONCE;
    if (answers >= ANSWERS) break;
  }
}
await fleet.close();
report({ answers, deaths, failures });

function report(tally: Tally): void {
  const failed = tally.failures.length;
  console.log(`${tally.answers} answers and calls, ${tally.deaths} deaths of model servers, ${failed} failures`);
  for (const failure of tally.failures) console.error(failure);
  process.exitCode = failed > 0 ? 1 : 0;
}
