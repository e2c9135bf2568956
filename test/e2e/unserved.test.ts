import { globSync, readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { joinGateway } from "./support.ts";

/** A path of OpenAI's that this server does not have is a 404 that says what it is, and whether it could be opened. */

/** The paths that the `openai` package asks. */
function openaiPaths(): string[] {
  const root = new URL("../../node_modules/openai/resources/", import.meta.url);
  const paths = globSync("**/*.mjs", { cwd: root }).flatMap((file) => {
    const text = readFileSync(new URL(file, root), "utf8");
    return [...text.matchAll(/_client\.\w+\((?:path)?["'`](\/[^"'`]*)/g)].map(([, path = ""]) => path);
  });
  const asked = paths.map((path) => path.replaceAll(/\$\{.*?\}/g, "id_1").replace(/\?.*/, ""));
  return [...new Set(asked)];
}

it("each path of OpenAI's own client is served, or its 404 names the API, or the variable that opens it", async () => {
  const gateway = await joinGateway();
  const paths = openaiPaths();
  expect(paths.length).toBeGreaterThan(60);
  const unnamed: string[] = [];
  for (const path of paths) {
    const headers = { "content-type": "application/json" };
    const answer = await fetch(`${gateway.url}/v1${path}`, { method: "POST", headers, body: "{}" });
    const text = await answer.text();
    const isNamed = /OpenAI's [\w -]+ API is not served|\([A-Z_]+\)|"code":"\w+_not_found"/.test(text);
    if (answer.status === 404 && !isNamed) unnamed.push(`${path}: ${text}`);
  }
  expect(unnamed).toEqual([]);
});

it.each([
  ["/v1/skills", "Skills"],
  ["/v1/agents/agent_1", "Agents"],
  ["/v1/audio/speech", "Speech"],
  ["/v1/realtime/sessions", "Realtime"],
  ["/v1/organization/users", "Administration"],
])("%s names the %s API", async (path, name) => {
  const gateway = await joinGateway();
  const answer = await fetch(gateway.url + path);
  const message = `Unknown request URL: GET ${path}. OpenAI's ${name} API is not served by this server.`;
  const error = { message, type: "invalid_request_error", param: null, code: "unknown_url" };
  expect([answer.status, await answer.json()]).toEqual([404, { error }]);
});

it("an endpoint that the operator has not opened names the variable", async () => {
  const gateway = await joinGateway();
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`${gateway.url}/v1/embeddings`, { method: "POST", headers, body: "{}" });
  const message =
    "Unknown request URL: POST /v1/embeddings. The operator of this server can open it (PASSTHROUGH_ENDPOINTS).";
  expect([answer.status, await answer.json()]).toMatchObject([404, { error: { message, code: "unknown_url" } }]);
});

it("a path that is none of OpenAI's says no more than that it is unknown", async () => {
  const gateway = await joinGateway();
  const answer = await fetch(`${gateway.url}/v1/nothing/here`);
  const error = { message: "Unknown request URL: GET /v1/nothing/here.", code: "unknown_url" };
  expect([answer.status, await answer.json()]).toMatchObject([404, { error }]);
});
