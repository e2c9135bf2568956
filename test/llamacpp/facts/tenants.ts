import { describe, expect, it } from "vitest";
import { ADMIN_KEY, call, makeKey, newTenant } from "../../e2e/key-support.ts";
import { answerOf, type Gateway, type PoolServer, type Subject, startGateway } from "../../vllm/facts/subject.ts";

/** llama.cpp has no cache salt: it has the prompts of all tenants in one cache. */
export function tenants(subject: () => Subject): void {
  async function withGateway(
    more: Record<string, unknown>,
    variables: Record<string, string>,
    use: (gateway: Gateway) => Promise<void>,
  ): Promise<void> {
    const servers: PoolServer[] = [{ url: subject().server.url, ...more }];
    const gateway = await startGateway(servers, { ADMIN_KEY, ALLOW_ANONYMOUS: "false", ...variables });
    try {
      await use(gateway);
    } finally {
      await gateway.close();
    }
  }

  async function asked(gateway: Gateway): Promise<{ status: number; code: string | undefined; text: string }> {
    const { value } = await makeKey(gateway, newTenant());
    const body = { model: subject().server.model, input: "Hello!" };
    const answer = await call(gateway, "POST", "/v1/responses", body, value);
    const text = await answer.text();
    const { error } = JSON.parse(text) as { error?: { code: string } };
    return { status: answer.status, code: error?.code, text };
  }

  describe.each([
    ["recognised", {}],
    ["named by the operator", { dialect: "llamacpp" }],
  ])("a server that is %s", (_, named) => {
    it("gets no prompt of several tenants", async () => {
      await withGateway(named, {}, async (gateway) => {
        expect(await asked(gateway)).toMatchObject({ status: 503, code: "tenants_not_separated" });
      });
    });

    it("gets them if the operator accepts a shared cache, and the log says so", async () => {
      await withGateway({ ...named, shared_cache: true }, {}, async (gateway) => {
        expect(await asked(gateway)).toMatchObject({ status: 200 });
        expect(await asked(gateway)).toMatchObject({ status: 200 });
        await expect.poll(() => gateway.process.logs()).toMatch(/tenants_not_separated|shared_cache/);
      });
    });

    it("is asked if there is one tenant", async () => {
      const servers = [{ url: subject().server.url, ...named }];
      const gateway = await startGateway(servers, {});
      try {
        const { model } = subject().server;
        expect(answerOf(await gateway.openai.responses.create({ model, input: "Hello!" }))).toBe("You said: Hello!");
      } finally {
        await gateway.close();
      }
    });
  });
}
