import { afterAll, beforeAll, describe, it } from "vitest";
import { guardedBy } from "../vllm/facts/moderation.ts";
import { type Gateway, type Run, type Subject, startGateway, subjectOf } from "../vllm/facts/subject.ts";
import type { ModelServer } from "../vllm/model-server.ts";
import { findInstallation, type Pace } from "./llamacpp-installation.ts";
import { START_MS, startLlamacpp } from "./llamacpp-server.ts";

/**
 * Registers facts about a gateway in front of a real llama.cpp, which is started for them. Without one, a skipped test
 * names what is missing.
 */
export function factsAboutLlamacpp(pace: Pace, facts: (subject: () => Subject, run: Run) => void): void {
  const installation = findInstallation();
  if (!installation) {
    describe(pace, () => it.skip("needs a llama.cpp, which LLAMACPP_HOME names"));
    return;
  }
  const serve = () => startLlamacpp(installation, pace);
  let guard: ModelServer | undefined;
  const run: Run = { engine: "chat", serve, owned: true, restartMs: START_MS, tokenMs: 0 };
  let current: Subject | undefined;
  let gateway: Gateway | undefined;
  beforeAll(async () => {
    const server = await serve();
    guard = await startLlamacpp(installation, "fast", "guard");
    gateway = await startGateway(server.url, guardedBy(guard));
    current = subjectOf(server, gateway);
    console.log(server.version);
  }, START_MS + 60_000);
  afterAll(async () => {
    try {
      await gateway?.close();
    } finally {
      await current?.server.close();
      await guard?.close();
    }
  });
  const subject = () => {
    if (!current) throw new Error("The server has not been started.");
    return current;
  };
  facts(subject, run);
}
