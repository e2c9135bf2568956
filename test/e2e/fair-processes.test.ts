import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { numbered, Rig, senders } from "./fair-rig.ts";
import { cleanUp, newFolder } from "./serve-support.ts";
import { eventually } from "./support.ts";

/** A limit of a model server that several processes share (docs/fleet.md#fair-sharing). */

afterAll(cleanUp);

describe("two workers with max_in_flight 4", () => {
  let rig: Rig;
  beforeAll(async () => {
    rig = await Rig.serve(1, { max_in_flight: 4 }, { WORKERS: "2" });
  });
  afterEach(() => rig.drain());
  afterAll(() => rig.gateway.close().then(() => rig.server.close()));

  it("send no more together, and all requests in the end", async () => {
    const key = await rig.key();
    const answers = numbered("r", 24).map((input) => rig.send(key, input));
    await eventually(async () => (await rig.known()) >= 24);
    await eventually(() => rig.server.running.length >= 4);
    for (let ended = 0; ended < 24; ended += 1) {
      await rig.server.endOne();
      // One more until each worker knows the other's requests.
      expect(rig.server.running.length).toBeLessThanOrEqual(5);
    }
    for (const answer of await Promise.all(answers)) expect(answer.status).toBe(200);
  });

  it("send another tenant's request before those of a flood that came earlier, whichever worker has it", async () => {
    const [flood, other] = [await rig.key(), await rig.key()];
    for (const input of numbered("flood", 24)) void rig.send(flood, input);
    await eventually(async () => (await rig.known()) >= 24);
    await rig.sendAll(other, numbered("other", 4));
    const before = rig.server.asked.length;
    for (let ended = 0; ended < 12; ended += 1) {
      await rig.server.endOne();
      await eventually(async () => rig.server.running.length >= 3 || (await rig.waiting()) === 0);
    }
    // First come, first served, they would all be behind the twenty of the flood that wait.
    const next = senders(rig.server.asked.slice(0, before + 12));
    expect(next.filter((name) => name === "other").length).toBeGreaterThanOrEqual(2);
  });
});

describe("a reload while requests wait", () => {
  it("ends none of them, and the next process takes its part of the limit", async () => {
    const rig = await Rig.serve(1, { max_in_flight: 2 }, { STOP_TIMEOUT_MS: "60000" });
    const key = await rig.key();
    const answers = numbered("old", 6).map((input) => rig.send(key, input));
    await eventually(async () => (await rig.known()) >= 6);
    rig.served?.child.kill("SIGHUP");
    await eventually(() => rig.served?.output().includes("Another process serves"));
    answers.push(...numbered("new", 4).map((input) => rig.send(key, input)));
    for (let ended = 0; ended < 10; ended += 1) await rig.server.endOne();
    for (const answer of await Promise.all(answers)) expect(answer.status).toBe(200);
    expect(senders(rig.server.asked).toSorted()).toEqual([
      ...numbered("", 4).map(() => "new"),
      ...numbered("", 6).map(() => "old"),
    ]);
    await rig.gateway.close();
    rig.server.close();
  });

  it("of the configuration lets them begin by the new limit", async () => {
    const file = join(newFolder(), "config.json");
    const write = (limit: number) => writeFileSync(file, JSON.stringify({ upstream_max_in_flight: limit }));
    write(2);
    const rig = await Rig.serve(1, {}, { CONFIG_FILE: file });
    const key = await rig.key();
    await rig.sendAll(key, numbered("r", 6));
    expect(rig.server.running).toHaveLength(2);
    write(5);
    await eventually(() => rig.served?.output().includes("config"));
    // The limit comes with a request.
    await eventually(async () => {
      void rig.send(key, "more");
      return rig.server.running.length >= 5;
    });
    expect(rig.server.running).toHaveLength(5);
    await rig.drain();
    await rig.gateway.close();
    rig.server.close();
  });
});
