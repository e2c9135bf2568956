import { afterAll, beforeAll, describe } from "vitest";
import { answers } from "./answers.ts";
import { background } from "./background.ts";
import { batches } from "./batches.ts";
import { compaction } from "./compaction.ts";
import { continuation } from "./continuation.ts";
import { deaths } from "./deaths.ts";
import { decisions } from "./decisions.ts";
import { formats } from "./formats.ts";
import { functions } from "./functions.ts";
import { grammars } from "./grammars.ts";
import { guardedBy, moderation } from "./moderation.ts";
import { passed } from "./passed.ts";
import { rawMessages } from "./raw-messages.ts";
import { repetition } from "./repetition.ts";
import { steering } from "./steering.ts";
import { type Gateway, type Run, type Subject, startGateway, subjectOf } from "./subject.ts";
import { tokens } from "./tokens.ts";
import { contextWindow } from "./window.ts";

/**
 * The facts about a gateway in front of a model server, registered as tests. They are written once and apply to a real
 * vLLM (`npm run test:vllm`) and to the simulator (`npm test`).
 */
export function facts(run: Run): void {
  let current: Subject | undefined;
  let gateway: Gateway | undefined;
  beforeAll(async () => {
    const server = await run.serve(run.engine);
    gateway = await startGateway(server.url, { ...guardedBy(server), ...run.variables });
    current = subjectOf(server, gateway);
    if (run.restartMs > 60_000) console.log(`${run.engine}: ${server.version}`);
  }, run.restartMs + 60_000);
  afterAll(async () => {
    try {
      await gateway?.close();
    } finally {
      await current?.server.close();
    }
  });
  const subject = () => {
    if (!current) throw new Error("The server has not been started.");
    return current;
  };

  describe("answers", () => answers(subject));
  describe("functions", () => functions(subject));
  describe("grammars", () => grammars(subject));
  describe("formats", () => formats(subject));
  describe("tokens", () => tokens(subject));
  describe("the window", () => contextWindow(subject));
  describe("usage of passed-on requests", () => passed(subject));
  describe("compaction", () => compaction(subject));
  describe("decisions", () => decisions(subject));
  describe("moderation", () => moderation(subject));
  describe("batches", () => batches(subject));
  describe("repetition", () => repetition(subject, run));
  describe("steering", () => steering(subject, run));
  if (run.engine === "chat") describe("continuation", () => continuation(subject));
  if (run.engine === "harmony") describe("raw messages", () => rawMessages(subject));
  describe("runs", () => background(subject, run));
  if (run.owned) describe("deaths", () => deaths(subject, run));
}
