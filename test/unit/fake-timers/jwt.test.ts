import { afterEach, beforeAll, beforeEach, expect, it, vi } from "vitest";
import { loadConfig } from "../../../src/config/index.ts";
import { jwtVerifier } from "../../../src/http/jwt.ts";

/** Tokens of an issuer whose keys are not available. test/e2e/jwt.test.ts covers the verification of tokens. */

const ISSUER = { JWT_ISSUER: "https://id.acme.dev", JWT_AUDIENCE: "x", JWT_JWKS_URL: "https://id.acme.dev/jwks" };

let token = "";
beforeAll(() => {
  const parts = [{ alg: "ES256", kid: "one" }, { iss: ISSUER.JWT_ISSUER }].map((part) => btoa(JSON.stringify(part)));
  token = `${parts.join(".").replaceAll("=", "")}.c2lnbmF0dXJl`;
});
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["Date"] });
});
afterEach(() => {
  vi.useRealTimers();
});

it.each<[what: string, answer: () => Response]>([
  ["is down", () => new Response(null, { status: 503 })],
  [
    "cannot be reached",
    () => {
      throw new TypeError("Connection refused.");
    },
  ],
  ["answers with HTML", () => new Response("<html>")],
  ["sends too much", () => Response.json({ keys: ["x".repeat(300_000)] })],
  ["lists no keys", () => new Response("{}")],
])("an issuer that %s admits nobody, and is asked every ten seconds, for any number of tokens", async (_, answer) => {
  const { jwt } = loadConfig({ VLLM_BASE_URL: "http://vllm.invalid/v1", ...ISSUER });
  if (!jwt) throw new Error("Tokens are taken.");
  let asked = 0;
  const fetch = async () => {
    asked += 1;
    return answer();
  };
  const verifier = jwtVerifier({ ...jwt, fetch });
  const expectRefused = () =>
    expect(verifier.holderOf(token, () => {})).rejects.toMatchObject({
      status: 503,
      code: "token_keys_unavailable",
      headers: { "retry-after": "10" },
    });
  for (let turn = 0; turn < 10; turn += 1) await expectRefused();
  expect(asked).toBe(1);
  vi.setSystemTime(Date.now() + 10_000);
  await expectRefused();
  expect(asked).toBe(2);
});
