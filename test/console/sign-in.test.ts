import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ask, makeKey, newTenant } from "../e2e/key-support.ts";
import { OidcIssuer } from "../e2e/oidc-issuer.ts";
import { type ConsoleRig, expectAccessible, expectUsable, KEYED, LOOKS, startConsole } from "./support.ts";

/** Signing in at an OpenID Provider, in a browser. */

let rig: ConsoleRig;
let issuer: OidcIssuer;
let front: Server;
beforeAll(async () => {
  // This address leads to the gateway, whose port is not yet known when it is configured.
  front = createServer((request, response) => {
    response.writeHead(302, { location: rig.gateway.url + request.url });
    response.end();
  });
  front.listen(0, "127.0.0.1");
  await once(front, "listening");
  const redirectUrl = `http://127.0.0.1:${(front.address() as AddressInfo).port}/console/callback`;
  issuer = await OidcIssuer.start(redirectUrl);
  rig = await startConsole({ ...KEYED, ...issuer.variables(redirectUrl) });
});
afterAll(async () => {
  await rig.close();
  issuer.close();
  front.close();
});

describe("a user of the issuer", () => {
  it("signs in without a key, returns to the same view, uses each transport, and signs out", async () => {
    issuer.user = { sub: "eve@acme.dev", org: "acme", groups: ["audit"] };
    const { page, close } = await rig.open("#/files");
    await page.getByRole("link", { name: "Sign in with your account" }).click();
    await page.getByText("eve@acme.dev").waitFor();
    expect(new URL(page.url()).hash).toBe("#/files");
    expect(new URL(page.url()).search).toBe("");
    expect(await page.evaluate("document.cookie + Object.keys(sessionStorage)")).not.toContain("session");
    const views = await page.getByRole("navigation", { name: "Views" }).getByRole("link").allTextContents();
    expect(views).toEqual(expect.arrayContaining(["Chat", "Operate"]));
    await page.goto(`${rig.gateway.url}/#/chat`);
    for (const way of ["Stream", "WebSocket"]) {
      await page.getByLabel("Transport").selectOption({ label: way });
      await page.getByRole("textbox", { name: "Input", exact: true }).fill(`Hello over ${way}`);
      await page.getByRole("button", { name: "Send" }).click();
      await page.getByText(`You said: Hello over ${way}`).first().waitFor();
    }
    await page.goto(`${rig.gateway.url}/#/operate/keys`);
    await page.getByRole("heading", { name: "Keys and limits" }).waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("dialog").waitFor();
    await page.reload();
    await page.getByRole("dialog").waitFor();
    await close();
  });

  it("is named in the audit log by what it has changed", async () => {
    issuer.user = { sub: "ann@acme.dev", groups: ["admins"] };
    const { page, close } = await rig.open("#/operate/keys");
    await page.getByRole("link", { name: "Sign in with your account" }).click();
    await page.getByRole("button", { name: "New key" }).click();
    await page.getByRole("dialog").getByLabel("Tenant").fill("anns");
    await page.getByRole("button", { name: "Create the key" }).click();
    await page.getByRole("button", { name: "Done" }).click();
    await page.getByRole("link", { name: "Audit log" }).click();
    const row = page.getByRole("region", { name: "Audit log" }).getByRole("row").filter({ hasText: "anns" });
    expect(await row.getByRole("cell").first().textContent()).toContain("ann@acme.dev");
    await close();
  });

  it("sees the controls of its role only: an auditor reads", async () => {
    const { gateway } = rig;
    const tenant = newTenant();
    await makeKey(gateway, tenant, { requests_per_minute: 60 }, { name: "Audited" });
    await ask(gateway, "POST", "/v1/admin/configuration", { model_prices: { "*": { input: 3, output: 15 } } });
    issuer.user = { sub: "eve@acme.dev", org: "acme", groups: ["audit"] };
    const { page, close } = await rig.open("#/operate/keys");
    await page.getByRole("link", { name: "Sign in with your account" }).click();
    const row = page.getByRole("row").filter({ hasText: "Audited" });
    await row.getByText("requests per minute: 60").waitFor();
    const buttons = page.locator(".view-operate").getByRole("button");
    expect(await buttons.allTextContents()).toEqual(["Tenant limits", "", "Show"]);
    await page.getByRole("button", { name: "Tenant limits" }).click();
    await page.getByRole("dialog").getByLabel("Tenant").fill(tenant);
    await page.getByRole("dialog").getByRole("button", { name: "Show" }).click();
    await page.getByRole("heading", { name: `Limits of tenant ${tenant}` }).waitFor();
    expect(await page.getByRole("dialog").getByRole("button").allTextContents()).toEqual(["Close"]);
    await page.getByRole("button", { name: "Close" }).click();
    await page.getByRole("link", { name: "Configuration" }).click();
    await page.getByText("Input, dollars for a million tokens: 3").waitFor();
    expect(await buttons.allTextContents()).toEqual(["Save as a file", "", "", ""]);
    await ask(gateway, "POST", "/v1/admin/configuration", { model_prices: { "*": null } });
    await close();
  });

  it("sees the reason why the sign-in failed", async () => {
    issuer.isRefusing = true;
    const { page, close } = await rig.open();
    await page.getByRole("link", { name: "Sign in with your account" }).click();
    await page.getByText("the sign-in was refused or cancelled").waitFor();
    issuer.isRefusing = false;
    issuer.user = { sub: "nobody@acme.dev" };
    await page.getByRole("link", { name: "Sign in with your account" }).click();
    await page.getByText("Your account has no access here").waitFor();
    await close();
  });

  it.each(LOOKS)("can use the form: %s", async (_, options) => {
    const { page, close } = await rig.open("", options);
    await page.getByRole("link", { name: "Sign in with your account" }).waitFor();
    const key = page.getByLabel("API key");
    expect(await key.getAttribute("type")).toBe("password");
    await page.getByRole("button", { name: "Show" }).click();
    expect(await key.getAttribute("type")).toBe("text");
    await expectAccessible(page);
    await expectUsable(page);
    await close();
  });
});
