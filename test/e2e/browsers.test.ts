import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { expectError } from "./expectations.ts";
import { type Gateway, startGateway } from "./support.ts";

/** Clients in browsers, and clients whose base URL or key is written as for another server. */

const PAGE = "https://app.example.com";
const KEY = "sk-of-the-page";

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startGateway({ CORS_ORIGINS: `${PAGE}, http://localhost:5173`, API_KEYS: await keyOf("acme", KEY) });
});
afterAll(() => gateway.close());

async function keyOf(tenant: string, key: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(key));
  return `${tenant}:${Buffer.from(digest).toString("hex")}`;
}

const ask = (path: string, headers: Record<string, string>, method = "POST") =>
  gateway.fetch(gateway.url + path, {
    method,
    headers: { "content-type": "application/json", ...headers },
    ...(method === "POST" && { body: JSON.stringify({ model: "simulator", input: "Hello!", store: false }) }),
  });
const bearer = { authorization: `Bearer ${KEY}` };

describe("a page of an origin that the operator has named", () => {
  it("may ask before it sends its key", async () => {
    const answer = await ask(
      "/v1/responses",
      {
        ...{ origin: PAGE, "access-control-request-method": "POST" },
        "access-control-request-headers": "authorization,content-type,x-stainless-lang",
      },
      "OPTIONS",
    );
    expect(answer.status).toBe(204);
    expect(answer.headers.get("access-control-allow-origin")).toBe(PAGE);
    expect(answer.headers.get("access-control-allow-methods")).toContain("POST");
    expect(answer.headers.get("access-control-allow-headers")).toContain("authorization");
    expect(answer.headers.get("access-control-allow-credentials")).toBeNull();
  });

  it("may read answers, errors and streams", async () => {
    const answers = [
      await ask("/v1/responses", { origin: PAGE, ...bearer }),
      await ask("/v1/responses", { origin: PAGE }),
      await ask("/v1/nothing", { origin: PAGE, ...bearer }),
    ];
    expect(answers.map(({ status }) => status)).toEqual([200, 401, 404]);
    for (const answer of answers) {
      expect(answer.headers.get("access-control-allow-origin")).toBe(PAGE);
      expect(answer.headers.get("vary")).toMatch(/origin/i);
      await answer.text();
    }
  });
});

it.each(["https://evil.example.com", "null", "https://app.example.com.evil.example", "http://app.example.com"])(
  "a page of %s is told nothing that lets it read",
  async (origin) => {
    const preflight = { origin, "access-control-request-method": "POST" };
    for (const answer of [
      await ask("/v1/responses", preflight, "OPTIONS"),
      await ask("/v1/responses", { origin, ...bearer }),
    ]) {
      expect(answer.headers.get("access-control-allow-origin")).toBeNull();
      await answer.text();
    }
  },
);

it("a key may come in Azure's header", async () => {
  const answer = await ask("/v1/responses", { "api-key": KEY });
  expect(answer.status).toBe(200);
  await answer.text();
  await expectError(await ask("/v1/responses", { "api-key": "another" }), { status: 401, code: "invalid_api_key" });
});

it.each([
  ["/v1/v1/responses", "/v1/responses"],
  ["/responses", "/v1/responses"],
  ["/openai/v1/responses", "/v1/responses"],
  ["/openai/deployments/gpt-5/responses?api-version=2026-01-01", "/v1/responses"],
  ["/api/v1/conversations/conv_1/items", "/v1/conversations/conv_1/items"],
])("the 404 of %s names %s", async (path, served) => {
  const answer = await ask(path, bearer);
  const { error } = (await answer.json()) as { error: { message: string } };
  expect(answer.status).toBe(404);
  expect(error.message).toContain(` This server has ${served}:`);
});

it.each(["/nothing", "/v1/nothing", "/v1/v1", "/openai"])("the 404 of %s names no other path", async (path) => {
  const { error } = (await (await ask(path, bearer)).json()) as { error: { message: string } };
  expect(error.message).not.toContain("This server has");
});
