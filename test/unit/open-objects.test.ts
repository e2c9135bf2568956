import type { env } from "cloudflare:test";
import { afterEach, describe, expect, it } from "vitest";
import {
  inOpenObject,
  type LivingObject,
  MANY_OBJECTS,
  mostOpenObjects,
  objectLeaves,
  objectLeft,
  objectOpened,
  openObjects,
} from "../../src/store/objects/open-objects.ts";

/** The open objects in a process with a low limit of open files. */

/** A limit that permits only the minimum number of open objects. */
const FEW = "9";
const LEAST = 4;
/** A limit that has no effect. */
const ENOUGH = "1000000";

const keyOf = (name: string) => `HOME:acme:${name}`;
const named = (name: string) => ({ key: keyOf(name), name: { binding: "HOME", tenant: "acme", key: name } }) as const;

/** Homes in memory, by name: whether each has work in progress, and the order in which they were closed. */
function homes(isIdle: (name: string) => boolean, files = FEW, mayBeVacant = false) {
  const lives = new Map<string, LivingObject>();
  const left: string[] = [];
  const getByName = (object: string) => {
    const name = object.replace("acme:", "");
    if (!lives.has(name)) {
      const life = { isIdle: isIdle(name), mayBeVacant };
      lives.set(name, life);
      objectOpened(keyOf(name), named(name).name, life);
    }
    return {
      leave: async () => {
        left.push(name);
        lives.delete(name);
        throw new Error("It has left.");
      },
    };
  };
  const bindings = {
    HOME: { getByName } as unknown as typeof env.HOME,
    OPEN_FILES: files,
    ...(mayBeVacant && { HOME_FILES: {} as Fetcher }),
  };
  const called = <T>(name: string, call: () => T, isInner = false) =>
    inOpenObject(bindings, {
      ...named(name),
      isInner,
      call: () => {
        getByName(`acme:${name}`);
        return call();
      },
    });
  return { called, left };
}

const answered = async () => "answer";

afterEach(() => {
  for (const name of [...openObjects().keys()]) objectLeft(name);
});

describe("the permitted number of open objects", () => {
  it("is a third of the files, and at least one", async () => {
    expect(await mostOpenObjects({ OPEN_FILES: "1024" })).toBe(113);
    expect(await mostOpenObjects({ OPEN_FILES: FEW })).toBe(LEAST);
    expect(await mostOpenObjects({})).toBe(Number.POSITIVE_INFINITY);
  });

  it("is lower if connections need the files", async () => {
    const list = { fetch: async () => Response.json(Array.from({ length: 860 })) } as unknown as Fetcher;
    expect(await mostOpenObjects({ OPEN_FILES: "1024", OPEN_FILE_LIST: list })).toBe(12);
  });

  it("closes the least recently used one", async () => {
    const { called, left } = homes(() => true);
    for (const name of ["a", "b", "c", "d", "a", "e", "f"]) expect(await called(name, answered)).toBe("answer");
    expect(left).toEqual(["b", "c"]);
    expect([...openObjects().keys()]).toEqual(["d", "a", "e", "f"].map(keyOf));
  });

  it("does not close homes with work in progress; another one is then a 503", async () => {
    const { called, left } = homes(() => false);
    for (const name of ["a", "b", "c", "d"]) await called(name, answered);
    await expect(called("e", answered)).rejects.toMatchObject({
      status: 503,
      code: "server_is_overloaded",
      headers: { "retry-after": "2" },
    });
    expect(await called("a", answered)).toBe("answer");
    expect(left).toEqual([]);
  });

  it("does not bind a call of an object, which is open itself meanwhile", async () => {
    const { called, left } = homes(() => false);
    for (const name of ["a", "b", "c", "d"]) await called(name, answered);
    expect(await called("e", answered, true)).toBe("answer");
    expect(left).toEqual([]);
  });

  it("does not close one in the middle of a call", async () => {
    const { called, left } = homes(() => true);
    const { promise, resolve } = Promise.withResolvers<string>();
    const call = called("a", () => promise);
    for (const name of ["b", "c", "d", "e", "f"]) await called(name, answered);
    expect(left).not.toContain("a");
    expect(objectLeaves(keyOf("a"))).toBe(false);
    resolve("late");
    expect(await call).toBe("late");
  });
});

it("beyond many open objects, a new one closes the least recently used idle one, and none with work", async () => {
  const { called, left } = homes((name) => name !== "0", ENOUGH);
  const opened = async (from: number, to: number) => {
    for (let index = from; index < to; index += 1) await called(String(index), answered);
  };
  await opened(0, MANY_OBJECTS);
  expect(left).toEqual([]);
  await called("1", answered);
  await opened(MANY_OBJECTS, MANY_OBJECTS + 3);
  await expect.poll(() => left).toEqual(["2", "3", "4"]);
  expect(openObjects().size).toBe(MANY_OBJECTS);
});

it("lets a call wait for a closing home, and opens it again", async () => {
  const { called } = homes(() => true);
  await called("a", answered);
  expect(objectLeaves(keyOf("a"))).toBe(true);
  let isAnswered = false;
  const call = called("a", answered).then(() => (isAnswered = true));
  await scheduler.wait(50);
  expect(isAnswered).toBe(false);
  objectLeft(keyOf("a"));
  await call;
  expect(openObjects().get(keyOf("a"))?.calls).toBe(0);
});

describe("a home that may store nothing", () => {
  it("is asked to leave after its last call", async () => {
    const { called, left } = homes(() => true, ENOUGH, true);
    await called("a", answered);
    expect(left).toEqual(["a"]);
  });

  it("is not opened again where a hand-over has closed it in the middle of a call", async () => {
    const { called, left } = homes(() => true, ENOUGH, true);
    await expect(
      called("a", async () => {
        objectLeft(keyOf("a"));
        throw new Error("The object was handed over.");
      }),
    ).rejects.toThrow("handed over");
    expect(left).toEqual([]);
  });
});
