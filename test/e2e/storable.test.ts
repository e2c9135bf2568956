import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Gateway, startGateway } from "./support.ts";

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startGateway();
});
afterAll(() => gateway.close());

/** A body within the limit that is beyond it as it would be stored: with an id and a status on every item. */
const input = Array.from({ length: 130_000 }, () => ({ role: "user", content: "x" }));

describe("a request that could not be stored with its response", () => {
  it.each([{}, { stream: true }, { background: true }])("is refused before anything is generated: %j", async (more) => {
    const answer = await gateway.post({ input, ...more });
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ error: { param: "input", type: "invalid_request_error" } });
    expect(gateway.vllm.simulator.requests.filter(({ path }) => path === "/v1/chat/completions")).toEqual([]);
  });
});
