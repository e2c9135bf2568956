import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Tool } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { expectError } from "./expectations.ts";
import { type Gateway, startGateway } from "./support.ts";
import { ask, EVERY_WAY, itemsOfType, startTools, type ToolServer } from "./tool-support.ts";

/** MCP servers of the operator, which requests name without an address or credentials. */

const SECRET = "sekret-connector-31415926";
const CLIENT_SECRET = "sekret-client-27182818";

let gateway: Gateway;
let server: ToolServer;
let tokens: Server;
/** The token requests: their credentials, and their forms. */
const asked: { authorization: string | undefined; form: string }[] = [];

beforeAll(async () => {
  server = await startTools({ add: { run: () => "3" } });
  tokens = createServer(async (request, response) => {
    let form = "";
    for await (const chunk of request) form += chunk;
    asked.push({ authorization: request.headers.authorization, form });
    const token = { access_token: `token-${asked.length}`, token_type: "Bearer", expires_in: 3_600 };
    const isKnown = !form.includes("unknown");
    response.writeHead(isKnown ? 200 : 401, { "content-type": "application/json" });
    response.end(JSON.stringify(isKnown ? token : { error: "invalid_client", error_description: CLIENT_SECRET }));
  });
  await new Promise<void>((resolve) => tokens.listen(0, "127.0.0.1", resolve));
  const token_url = `http://127.0.0.1:${(tokens.address() as AddressInfo).port}/token`;
  const oauth = { token_url, client_id: "edge", client_secret: CLIENT_SECRET };
  gateway = await startGateway({
    MCP_CONNECTORS: JSON.stringify({
      docs: { url: server.url, headers: { "X-Api-Key": SECRET } },
      connector_dropbox: { url: server.url, oauth: { ...oauth, scope: "files.read" } },
      closed: { url: server.url, oauth: { ...oauth, scope: "unknown" } },
    }),
  });
});
afterAll(async () => {
  await gateway.close();
  await server.close();
  tokens.close();
});

const tool = (fields: object) => ({ type: "mcp", require_approval: "never", ...fields }) as Tool;

describe("a connector", () => {
  it.each(EVERY_WAY)("is named by its label alone (%s, %s)", async (model, way) => {
    const from = server.headers.length;
    const body = { model, input: "Call docs__add.", tools: [tool({ server_label: "docs" })] };
    const { response, events } = await ask(gateway, way, body);
    expect(itemsOfType(response, "mcp_call")).toMatchObject([{ server_label: "docs", name: "add", output: "3" }]);
    const sent = server.headers.slice(from);
    expect(sent.length).toBeGreaterThan(1);
    for (const headers of sent) expect(headers).toMatchObject({ "x-api-key": SECRET });
    expect(response.tools).toEqual([{ type: "mcp", server_label: "docs", require_approval: "never" }]);
    const told = JSON.stringify([response, events, await gateway.openai.responses.retrieve(response.id)]);
    expect(told).not.toContain(SECRET);
    expect(told).not.toContain(server.url);
  });

  it("is named by connector_id, and reached with the token of the operator's client, which is asked for once", async () => {
    const from = server.headers.length;
    const tools = [tool({ server_label: "files", connector_id: "connector_dropbox" })];
    const first = await gateway.openai.responses.create({ model: "simulator", input: "Call files__add.", tools });
    expect(itemsOfType(first, "mcp_call")).toMatchObject([{ server_label: "files", output: "3" }]);
    const again = { model: "simulator", input: "Call files__add.", tools, previous_response_id: first.id };
    expect(itemsOfType(await gateway.openai.responses.create(again), "mcp_call")).toMatchObject([{ output: "3" }]);
    for (const { authorization } of server.headers.slice(from)) expect(authorization).toBe("Bearer token-1");
    expect(asked).toEqual([
      {
        authorization: `Basic ${Buffer.from(`edge:${CLIENT_SECRET}`).toString("base64")}`,
        form: expect.stringMatching(/grant_type=client_credentials/),
      },
    ]);
    expect(new URLSearchParams(asked[0]?.form).get("scope")).toBe("files.read");
    // The list of the first turn is in the history.
    expect(server.lists).toBeGreaterThan(0);
  });

  it("whose token endpoint refuses is a list with an error, without its words", async () => {
    const tools = [tool({ server_label: "closed" })];
    const response = await gateway.openai.responses.create({ model: "simulator", input: "Hello!", tools });
    expect(itemsOfType(response, "mcp_list_tools")).toMatchObject([
      { tools: [], error: "The token endpoint of MCP server 'closed' gives no token." },
    ]);
    expect(gateway.logs()).not.toContain(CLIENT_SECRET);
  });

  it.each([
    ["that nobody has, by label", { server_label: "none" }, "tools[0].server_url"],
    ["that nobody has, by id", { server_label: "docs", connector_id: "connector_gmail" }, "tools[0].connector_id"],
    [
      "beside an address",
      { server_label: "docs", connector_id: "docs", server_url: "https://mcp.example.com" },
      "tools[0].connector_id",
    ],
    ["of a name that every object has", { server_label: "toString" }, "tools[0].server_url"],
  ])("%s is a 400", async (_, fields, param) => {
    const answer = await gateway.post({ model: "simulator", input: "Hello!", tools: [tool(fields)] });
    await expectError(answer, { status: 400, param });
  });
});
