import { createHash } from "node:crypto";
import { createRequest } from "@responses-edge/responses-api/create-bodies";
import { ApiError } from "@responses-edge/responses-api/errors";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readJson } from "../../src/http/body.ts";
import { type Gateway, startGateway } from "../e2e/support.ts";
import { newSeed } from "../random.ts";
import { type Generated, generated, MIB, mostReads, ROWS, textOf } from "./bodies.ts";
import { counted, valuesOf } from "./counting.ts";
import { beginHeldStream, type HeldStream } from "./held-stream.ts";

/**
 * One request must not harm another. Every body is refused or served within a bound on work: its reads, the values made
 * from it, and the calls of other servers. No time is measured.
 */

/** The default limit of a body. */
const MAX_BYTES = 12 * MIB;

/** The maximum number of issues of one refusal: one for each field of the body, and of nested objects. */
const MAX_ISSUES = 64;

/** Calls of the model server for one request: the prompt, a second prompt for some templates, and the answer. */
const MAX_CALLS = 3;

/** The maximum length of an error as JSON. An error quotes only the beginning of a client's text. */
const MAX_ERROR_LENGTH = 1_000;

/** The long texts that were parsed as JSON. The short ones belong to the other tenant's stream. */
let parsedTexts = 0;
const { parse } = JSON;
beforeAll(() => {
  // A spy would keep all parsed values in memory.
  JSON.parse = (text, reviver) => {
    if (text.length > 100_000) parsedTexts += 1;
    return parse(text, reviver);
  };
});
afterAll(() => {
  JSON.parse = parse;
});

const SENDER = { tenant: "attacker", config: { maxRequestBytes: MAX_BYTES, maxOpenTurns: 200 } };

/** The number of values made from a body before validation, and the cost of its validation. */
async function validated(body: string | Uint8Array) {
  const request = new Request("http://gateway/", {
    method: "POST",
    headers: { "content-type": "application/json", ...(typeof body !== "string" && { "content-encoding": "gzip" }) },
    body: body as BodyInit,
  });
  const before = parsedTexts;
  try {
    const value = (await readJson(request, SENDER)).value;
    const { value: watched, reads } = counted(value);
    const result = createRequest.safeParse(watched);
    return { isParsed: true, values: valuesOf(value), reads: reads(), issues: result.error?.issues.length ?? 0 };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { isParsed: parsedTexts > before, values: 0, reads: 0, issues: 0, status: error.status };
  }
}

const KEYS = { attacker: "key-of-the-attacker", other: "key-of-the-other" };
const API_KEYS = Object.entries(KEYS)
  .map(([tenant, key]) => `${tenant}:${createHash("sha256").update(key).digest("hex")}`)
  .join(",");

/** A gateway that is attacked while another tenant streams. */
class Attacked {
  readonly #gateway: Gateway;
  readonly #stream: HeldStream;
  #said = "";
  #word = Promise.resolve();
  /** Calls of the model server that have it work. */
  calls = 0;
  /** Its list of models is read again after some seconds. */
  lookups = 0;

  private constructor(gateway: Gateway, stream: HeldStream) {
    this.#gateway = gateway;
    this.#stream = stream;
    const { simulator } = gateway.vllm;
    const answer = simulator.fetch.bind(simulator);
    simulator.fetch = (request) => {
      if (request.method === "GET") this.lookups += 1;
      else this.calls += 1;
      return answer(request);
    };
  }

  static async start(vars: Record<string, string> = {}): Promise<Attacked> {
    const own = {
      API_KEYS,
      VLLM_EXTRAS: "all",
      PASSTHROUGH_ENDPOINTS: "images/generations",
      GUARD_URL: "http://127.0.0.1:9/guard",
      ALLOW_ANONYMOUS: "false",
      VLLM_MAX_RETRIES: "0",
      // The simulated model repeats what hostile bodies repeat, and would be asked twice more.
      REPETITION_GUARD: "off",
      // The health check of a slow model server is not a call by the request.
      VLLM_SILENCE_MS: "600000",
    };
    const gateway = await startGateway({ ...own, ...vars }, true);
    return new Attacked(gateway, await beginHeldStream(gateway, KEYS.other));
  }

  async post(body: string | Uint8Array, path = "/v1/responses") {
    const response = await this.#gateway.fetch(this.#gateway.url + path, {
      method: "POST",
      headers: {
        authorization: `Bearer ${KEYS.attacker}`,
        "content-type": "application/json",
        ...(typeof body !== "string" && { "content-encoding": "gzip" }),
      },
      body: (typeof body === "string" ? new TextEncoder().encode(body) : body) as BodyInit,
    });
    const text = await response.text();
    const { error } = JSON.parse(text) as { error: { param: string | null; code: string } | null };
    return { status: response.status, text, param: error?.param, code: error?.code };
  }

  /** Checks that the other tenant's stream goes on: its model outputs another word, and its client gets it. */
  streamGoesOn(): Promise<void> {
    this.#word = this.#word.then(() => {
      const word = `${this.#said === "" ? "" : " "}${this.#said.length}`;
      this.#said += word;
      return this.#stream.say(word);
    });
    return this.#word;
  }

  /** Checks that the other tenant's stream has every word, and completes. */
  async expectWholeStream(): Promise<void> {
    expect(await this.#stream.end()).toEqual({ text: this.#said, last: "response.completed" });
  }

  close(): Promise<void> {
    return this.#gateway.close();
  }
}

let open: Attacked;
/** A gateway with an encryption key. */
let sealing: Attacked;

beforeAll(async () => {
  const ENCRYPTION_KEYS = `k:${Buffer.alloc(32, 1).toString("base64")}`;
  [open, sealing] = await Promise.all([Attacked.start(), Attacked.start({ ENCRYPTION_KEYS })]);
});
afterAll(() => Promise.all([open.close(), sealing.close()]));

describe("a hostile body", () => {
  it.each(ROWS)("$name", async (row) => {
    const body = row.body();
    const attacked = row.sealing ? sealing : open;
    const { calls, lookups } = attacked;
    const answer = attacked.post(body, row.path);
    await attacked.streamGoesOn();
    const { status, text, param, code } = await answer;
    if (row.refused) {
      expect({ status, param, code }).toEqual(row.refused);
      expect(text.length).toBeLessThan(MAX_ERROR_LENGTH);
    } else expect(status).toBe(200);
    expect(attacked.calls - calls).toBeLessThanOrEqual(row.refused ? 0 : MAX_CALLS);
    expect(attacked.lookups - lookups).toBeLessThanOrEqual(1);

    if (row.path) return;
    const work = await validated(body);
    expect(work.issues).toBeLessThanOrEqual(MAX_ISSUES);
    expect(work.reads).toBeLessThanOrEqual(mostReads(row, work.values));
    if (row.refused?.status === 413) expect(work.isParsed).toBe(false);
  });
});

/** Bodies that are uploaded at the same time. */
const LANES = 4;

it("generated bodies are each refused or served, within a bound on work", async () => {
  const bodies = fc.sample(generated, { numRuns: 250, seed: newSeed("hostile bodies") });
  const { calls, lookups } = open;
  const send = async (left: Iterable<[number, Generated]>) => {
    for (const [index, body] of left) {
      await expectBounded(body);
      if (index % 20 === 0) await open.streamGoesOn();
    }
  };
  // Two large ones at the same time exceed one tenant's share of memory.
  const isLarge = (body: Generated) => textOf(body).length > MIB;
  const left = bodies.filter((body) => !isLarge(body)).entries();
  await Promise.all(Array.from({ length: LANES }, () => send(left)));
  await send(bodies.filter(isLarge).entries());
  expect(open.calls - calls + open.lookups - lookups).toBeLessThanOrEqual(bodies.length * MAX_CALLS);
});

async function expectBounded(body: Generated): Promise<void> {
  const sent = textOf(body);
  const { status, text, code } = await open.post(sent);
  const described = JSON.stringify(body);
  expect([200, 400, 404, 413], described).toContain(status);
  if (status !== 200) expect(text.length, described).toBeLessThan(MAX_ERROR_LENGTH);
  // The request's own texts, and their echo by the model.
  else expect(text.length, described).toBeLessThan(10_000 + 8 * sent.length);
  if (code === "context_length_exceeded" || sent.length > 20_000) return;
  const work = await validated(sent);
  expect(work.issues, described).toBeLessThanOrEqual(MAX_ISSUES);
  expect(work.reads, described).toBeLessThanOrEqual(1_000 + 40 * work.values);
}

it("the other tenant's stream has every word, and completes", async () => {
  await open.expectWholeStream();
  await sealing.expectWholeStream();
});
