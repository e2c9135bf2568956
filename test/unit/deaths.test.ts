import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { describe, expect, it } from "vitest";
import { DEATHS_TABLE, Deaths } from "../../src/store/objects/deaths.ts";
import { Schema } from "../../src/store/objects/schema.ts";

/** Work that an alarm resumes after its process has died: what always ends the process is found, and given up. */

let objects = 0;

/** Runs a test with a function that begins another instance of an object, as after the death of its process. */
async function inObject(test: (begin: (together: number) => Deaths) => void, work: () => readonly string[]) {
  objects += 1;
  await runInDurableObject(env.QUOTAS.getByName(`deaths-${objects}`), (_, { storage }) => {
    storage.sql.exec(DEATHS_TABLE);
    test((together) => {
      const deaths = new Deaths(new Schema(storage, [DEATHS_TABLE]));
      deaths.begin(together, (limit) => work().slice(0, limit));
      return deaths;
    });
  });
}

describe("the deaths in the middle of work", () => {
  it("lead to the one piece that causes them, and no other is given up", async () => {
    for (const killer of ["a", "c", "e"]) {
      let left = ["a", "b", "c", "d", "e"];
      let died = 0;
      await inObject(
        (begin) => {
          for (let instance = 0; left.length > 0; instance += 1) {
            expect(instance).toBeLessThan(20);
            const deaths = begin(3);
            for (const key of left.filter((each) => deaths.isOver(each))) {
              expect(key).toBe(killer);
              deaths.done(key);
              left = left.filter((each) => each !== key);
            }
            for (let isDead = false; left.length > 0 && !isDead; ) {
              const together = left.slice(0, deaths.isAlone ? 1 : 3);
              isDead = together.includes(killer);
              if (isDead) died += 1;
              // The others may be done before it.
              const done = isDead ? together.filter((key) => key !== killer).slice(1) : together;
              for (const key of done) deaths.done(key);
              left = left.filter((key) => !done.includes(key));
              if (left.length === 0) deaths.end();
            }
          }
        },
        () => left,
      );
      expect(died).toBe(6);
    }
  });

  it("are none if the work has ended, or was handed over", () =>
    inObject(
      (begin) => {
        for (let instance = 0; instance < 20; instance += 1) {
          const deaths = begin(2);
          expect([deaths.of("a"), deaths.isAlone]).toEqual([0, false]);
          deaths.end();
        }
      },
      () => ["a", "b"],
    ));

  it("are forgotten of work that makes progress, and of work that is gone", async () => {
    let left = ["a", "b"];
    await inObject(
      (begin) => {
        begin(2);
        begin(2);
        const third = begin(2);
        expect([third.of("a"), third.of("b"), third.isAlone]).toEqual([2, 2, true]);
        third.done("a");
        left = ["a"];
        const fourth = begin(2);
        expect([fourth.of("a"), fourth.of("b"), fourth.isAlone]).toEqual([1, 0, false]);
      },
      () => left,
    );
  });
});
