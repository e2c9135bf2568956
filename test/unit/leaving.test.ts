import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { parseConversationId } from "@responses-edge/responses-api/ids";
import { beforeEach, describe, expect, it } from "vitest";
import { createSimulator, type Simulator } from "../../dev/simulator/handler.ts";
import type { RawEnv } from "../../src/env.ts";
import app from "../../src/http/app.ts";
import { HomeClient } from "../../src/store/home/home-client.ts";
import { tenantConversations } from "../../src/store/limits/permits.ts";
import { withObjects } from "../../src/store/objects/objects.ts";

/**
 * Clients that disconnect while nothing is written to them. Cloudflare reports that by the request's signal
 * (`enable_request_signal`). Local runtimes do not, so the tests use a signal of their own.
 */

const TENANT = "local";
const ENDLESS = "simulator?tps=50&words=100000";

let simulator: Simulator;
let bindings: RawEnv;
beforeEach(() => {
  simulator = createSimulator();
  const VLLM = { fetch: (url: string, init: RequestInit) => simulator.fetch(new Request(url, init)) } as RawEnv["VLLM"];
  bindings = { ...env, VLLM, ALLOW_ANONYMOUS: "true" };
});

interface Call {
  answer: Promise<Response>;
  /** The client disconnects. */
  leave(): void;
  /** Resolves when the Worker has nothing more to do for this request. */
  over(): Promise<void>;
}

function call(path: string, body: object, { headers = {}, vars = {} }: { headers?: object; vars?: object } = {}): Call {
  const client = new AbortController();
  const context = createExecutionContext();
  const request = new Request(`http://localhost${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
    signal: client.signal,
  });
  const answer = Promise.resolve(app.fetch(request, withObjects({ ...bindings, ...vars }), context));
  answer.catch(() => {});
  return {
    answer,
    leave: () => client.abort(),
    over: async () => {
      await answer.catch(() => {});
      await waitOnExecutionContext(context);
    },
  };
}

const create = (body: object, options?: Parameters<typeof call>[2]) =>
  call("/v1/responses", { model: "simulator", ...body }, options);

async function newConversation(): Promise<string> {
  const { id } = await (await call("/v1/conversations", {}).answer).json<{ id: string }>();
  return id;
}

function homeOf(conversation: string) {
  return env.HOME.getByName(`${TENANT}:${parseConversationId(conversation)?.home}`);
}

/** Another client takes a turn in the conversation. */
function holdConversation(id: string) {
  const home = parseConversationId(id)?.home ?? "";
  return new HomeClient(withObjects(env), TENANT).enterConversation({ id, home }, "holder", 0);
}

async function textsIn(conversation: string): Promise<string[]> {
  const page = await homeOf(conversation).conversationItems(conversation, { limit: 100, order: "asc" });
  const items = JSON.parse(page?.ok ? page.value.data : "[]") as { content: { text: string }[] }[];
  return items.map(({ content }) => content.map(({ text }) => text).join(""));
}

/** Begins a turn, and waits until it waits for its conversation. */
async function inLine(begin: () => Call): Promise<Call> {
  const before = tenantConversations.takenBy(TENANT);
  const begun = begin();
  await until(() => tenantConversations.takenBy(TENANT) === before + 1);
  return begun;
}

/** The model server's requests with this text. */
const asked = (text: string) => simulator.requests.filter(({ body }) => JSON.stringify(body ?? "").includes(text));

async function until(condition: () => boolean): Promise<void> {
  for (let attempt = 0; !condition(); attempt += 1) {
    if (attempt > 6_000) throw new Error("It did not come true in time.");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

describe("a client that disconnects", () => {
  it.each([false, true])("frees its conversation, and leaves nothing in it (stream: %s)", async (stream) => {
    const conversation = await newConversation();
    const leaver = create({ model: ENDLESS, input: "I leave.", conversation, stream });
    await until(() => asked("I leave.").length === 1);
    const next = create({ input: "I stay.", conversation });
    leaver.leave();
    expect((await next.answer).status).toBe(200);
    await leaver.over();
    expect(asked("I leave.")[0]?.state).toBe("aborted");
    expect(await textsIn(conversation)).toEqual(["I stay.", "You said: I stay."]);
  });

  it.each([{}, { stream: true }, { background: true }])(
    "while it waits for a conversation leaves the queue (%o)",
    async (way) => {
      const conversation = await newConversation();
      const { release } = await holdConversation(conversation);
      const leaver = await inLine(() => create({ input: "I leave.", conversation, ...way }));
      const next = await inLine(() => create({ input: "I stay.", conversation }));
      leaver.leave();
      await leaver.over();
      release();
      expect((await next.answer).status).toBe(200);
      expect(asked("I leave.")).toEqual([]);
      expect(await textsIn(conversation)).toEqual(["I stay.", "You said: I stay."]);
    },
  );

  it("while it waits for too long ends its request at once", async () => {
    const conversation = await newConversation();
    const { release } = await holdConversation(conversation);
    // A turn that stays in the queue outlives the test.
    const vars = { CONVERSATION_LOCK_WAIT_MS: "3600000" };
    const leaver = await inLine(() => create({ input: "I leave.", conversation }, { vars }));
    leaver.leave();
    await leaver.over();
    release();
  });

  it("with an Idempotency-Key as soon as its run has begun does not free the key", async () => {
    let leave = () => {};
    /** Homes that notice the disconnection when the stream is about to begin. */
    const HOME = new Proxy(env.HOME, {
      get: (namespace, property) => {
        if (property !== "getByName") return Reflect.get(namespace, property);
        return (name: string) =>
          new Proxy(namespace.getByName(name), {
            get: (stub, method) => {
              if (method !== "fetch") return Reflect.get(stub, method);
              return (input: RequestInfo, init?: RequestInit) => {
                leave();
                return stub.fetch(input, init);
              };
            },
          });
      },
    });
    const headers = { "idempotency-key": "key of a client that leaves" };
    const body = { input: "I leave.", stream: true };
    const leaver = create(body, { headers, vars: { HOME } });
    leave = leaver.leave;
    await leaver.over();
    // Another request with the key is refused: the key still has its response.
    const other = await create({ ...body, input: "Other." }, { headers }).answer;
    expect(other.status).toBe(422);
    await other.text();
  });
});
