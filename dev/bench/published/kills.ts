import { setTimeout as sleep } from "node:timers/promises";
import { Connection, get, type Request } from "../load.ts";
import { OTHER_CORE } from "../processes.ts";
import {
  type Measurement,
  type Question,
  RESPONSES_DELTA,
  type Row,
  responsesRequest,
  startTarget,
  startUpstream,
  type Target,
  type TargetKind,
} from "../targets.ts";

/**
 * Tokens that a client loses, or gets a second time, when `kill -9` ends the gateway or the model server in the middle
 * of its answers. The process starts again at once, and the client continues as the API lets it: it asks for the events
 * after its last one, and where there is no such answer, it asks again.
 */

const STREAMS = 16;
const TOKENS = 64;
const TOKEN_MS = 20;
/** Streams begin over this time. The kill comes once all have begun, or at the latest after some seconds. */
const RAMP_MS = 400;
const BEGIN_MS = 3_000;
/** The kills come by this much later each, within half a stream. */
const KILL_STEP_MS = 97;
/** A target that starts slowly is killed fewer times. */
const PATIENCE_MS = 15_000;
const ANSWER_MS = 15_000;
/** A client whose request is refused, as by a gateway that does not know its model server yet, waits and asks again. */
const ASKED_AGAIN = 10;
const RETRY_MS = 500;

export const ANSWERS = "answers open at a kill";
export const LOST = "tokens lost per 1,000";
export const REPEATED = "tokens repeated per 1,000";

/** `serve` with answers in the background, which go on after a death. */
export const asBackground = (kind: TargetKind): TargetKind => ({
  ...kind,
  name: `${kind.name.split(",")[0]}, background`,
  request: (question) => responsesRequest(question, { store: true, background: true }),
});

/** One answer as its client has it. */
interface Reading {
  /** The text of each connection, in order. */
  texts: string[];
  hasBegun: boolean;
  hasEnded: boolean;
}

const newReading = (): Reading => ({ texts: [], hasBegun: false, hasEnded: false });

const question: Question = { model: `simulator?live=kill&words=${TOKENS}&tps=${1_000 / TOKEN_MS}`, stream: true };
/** A peer's model server is not asked to continue an answer: it replays one. */
const replayed: Question = { ...question, model: `simulator?words=${TOKENS}&tps=${1_000 / TOKEN_MS}` };

const MODELS = ["simulator", question.model, replayed.model];

/** Sends a request, and reads its answer's events to the end or until it breaks. */
async function readEvents(port: number, request: Request, onDelta = () => {}): Promise<string> {
  const kept: Buffer[] = [];
  try {
    const connection = await Connection.open(port);
    connection.onNeedles = onDelta;
    const deadline = setTimeout(() => connection.close(), ANSWER_MS);
    await connection.read(request, kept).catch(() => {});
    clearTimeout(deadline);
    connection.close();
  } catch {
    // Nothing listens.
  }
  const text = Buffer.concat(kept).toString();
  return text.slice(0, text.lastIndexOf("\n\n") + 2);
}

/** The text of an answer's deltas. */
function deltasIn(events: string): string {
  const lines = events.split("\n").filter((line) => line.startsWith("data: {"));
  const deltas = lines
    .map((line) => JSON.parse(line.slice(6)) as { type: string; delta?: string })
    .filter(({ type }) => type === "response.output_text.delta");
  return deltas.map(({ delta }) => delta ?? "").join("");
}

const isCompleted = (events: string) => events.includes('"response.completed"');

/** Reads the rest of an answer, or asks again. */
async function goOn(target: Target, reading: Reading, events: string): Promise<void> {
  const id = /"id": ?"(resp_[\w-]+)"/.exec(events)?.[1];
  const last = [...events.matchAll(/"sequence_number": ?(\d+)/g)].at(-1)?.[1];
  let rest = "";
  if (id !== undefined && last !== undefined) {
    rest = await readEvents(
      target.port,
      get(`/v1/responses/${id}?stream=true&starting_after=${last}`, RESPONSES_DELTA),
    );
  }
  for (let asked = 0; !isCompleted(rest) && asked < ASKED_AGAIN; asked += 1) {
    if (rest !== "") reading.texts.push(deltasIn(rest));
    if (asked > 0) await sleep(RETRY_MS);
    rest = await readEvents(target.port, requestOf(target));
  }
  reading.texts.push(deltasIn(rest));
}

const requestOf = (target: TargetKind) => target.request(target.isPeer === true ? replayed : question);

const wordsOf = (text: string) => text.split(" ").filter((word) => word !== "").length;

/** Counts the words that the client of an answer lacks, and those that it has a second time. */
function count(reading: Reading, expected: string): { lost: number; repeated: number } {
  const all = reading.texts.join("");
  if (all === expected) return { lost: 0, repeated: 0 };
  const last = reading.texts.at(-1) ?? "";
  const had = expected.startsWith(all) ? all : expected.startsWith(last) ? last : "";
  const total = reading.texts.reduce((sum, text) => sum + wordsOf(text), 0);
  return { lost: wordsOf(expected) - wordsOf(had), repeated: total - wordsOf(had) };
}

type Killed = "gateway" | "model server";

async function measureKills(kind: TargetKind, killed: Killed, kills: number): Promise<Measurement> {
  let upstream = await startUpstream(OTHER_CORE, MODELS);
  let target = await startTarget(kind, upstream);
  const sums = { answers: 0, lost: 0, repeated: 0 };
  try {
    const whole = newReading();
    await goOn(target, whole, "");
    const expected = whole.texts.at(-1) ?? "";
    if (wordsOf(expected) !== TOKENS) throw new Error(`${kind.name} gives no answer of ${TOKENS} words`);
    const begun = performance.now();
    for (let kill = 0; kill < kills && performance.now() - begun < PATIENCE_MS; kill += 1) {
      let restarted: () => void = () => {};
      const isUp = new Promise<void>((resolve) => {
        restarted = resolve;
      });
      const readings = Array.from({ length: STREAMS }, newReading);
      const read = readings.map(async (reading, index) => {
        await sleep((RAMP_MS * index) / STREAMS);
        const events = await readEvents(target.port, requestOf(target), () => {
          reading.hasBegun = true;
        });
        reading.hasEnded = true;
        reading.texts.push(deltasIn(events));
        if (isCompleted(events)) return;
        await isUp;
        await goOn(target, reading, events);
      });
      const latest = performance.now() + BEGIN_MS;
      while (readings.some(({ hasBegun }) => !hasBegun) && performance.now() < latest) await sleep(5);
      await sleep((kill * KILL_STEP_MS) % (RAMP_MS + 100));
      const open = readings.filter(({ hasBegun, hasEnded }) => hasBegun && !hasEnded);
      if (killed === "gateway") {
        await target.stop();
        target = await startTarget(kind, upstream, target.state);
      } else {
        const { port } = upstream;
        await upstream.stop();
        upstream = await startUpstream(OTHER_CORE, MODELS, port);
      }
      restarted();
      await Promise.all(read);
      for (const reading of open) {
        const { lost, repeated } = count(reading, expected);
        sums.answers += 1;
        sums.lost += lost;
        sums.repeated += repeated;
      }
    }
  } finally {
    await target.stop();
    await upstream.stop();
  }
  const perThousand = 1_000 / sums.answers;
  return { [ANSWERS]: sums.answers, [LOST]: sums.lost * perThousand, [REPEATED]: sums.repeated * perThousand };
}

export const killRows = (["gateway", "model server"] as const).map(
  (killed): Row => ({
    name: `kill -9 of the ${killed}`,
    metrics: { [ANSWERS]: 0, [LOST]: 0, [REPEATED]: 0 },
    hasRatios: false,
    isOnce: true,
    measure: (target, { windowMs }) => measureKills(target, killed, windowMs < 1_000 ? 2 : 6),
  }),
);
