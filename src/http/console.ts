/// <reference path="./raw.d.ts" />

import { createHash } from "node:crypto";
import { gunzipSync } from "node:zlib";
import { type Context, Hono } from "hono";
import chart from "../../packages/console/dist/chart.js.gz";
import colours from "../../packages/console/dist/code-colours.js.gz";
import style from "../../packages/console/dist/console.css?raw";
import diagrams from "../../packages/console/dist/diagrams.js.gz";
import first from "../../packages/console/dist/first.js.gz";
import formulas from "../../packages/console/dist/formulas.js.gz";
import icon from "../../packages/console/dist/icon.svg.gz";
import later from "../../packages/console/dist/later.js.gz";
import markdown from "../../packages/console/dist/markdown-reader.js.gz";
import index from "../../packages/console/src/index.html?raw";
import { loadConfig, type ToolConfig } from "../config/index.ts";
import type { AppEnv } from "./app-env.ts";

/** The console: a page at `/` and its files. They hold no data: all data comes from the API, which wants a key. */

/** A year. A file's folder has another name as soon as any file changes. */
const FOR_GOOD = "public, max-age=31536000, immutable";

/**
 * Only this origin's files, no inline script, no style but the page's own, no markup from strings (except the console's own
 * lit-html templates), and no page around it.
 */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  `style-src 'sha256-${createHash("sha256").update(style).digest("base64")}'`,
  "connect-src 'self'",
  "img-src 'self' data: blob:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types lit-html",
].join("; ");

const HEADERS = {
  "content-security-policy": CONTENT_SECURITY_POLICY,
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
};

const SCRIPT = "text/javascript; charset=utf-8";

/** The files of the page, by name, compressed. */
const FILES: Readonly<Record<string, { packed: ArrayBuffer; type: string }>> = {
  "first.js": { packed: first, type: SCRIPT },
  "later.js": { packed: later, type: SCRIPT },
  "markdown-reader.js": { packed: markdown, type: SCRIPT },
  "code-colours.js": { packed: colours, type: SCRIPT },
  "chart.js": { packed: chart, type: SCRIPT },
  "formulas.js": { packed: formulas, type: SCRIPT },
  "diagrams.js": { packed: diagrams, type: SCRIPT },
  "icon.svg": { packed: icon, type: "image/svg+xml" },
};

interface Console {
  /** A hash of all files. */
  version: string;
  page: string;
}

let built: Console | undefined;

/** The page, with its style and the name of its files' folder. */
function theConsole(): Console {
  if (!built) {
    const hash = createHash("sha256");
    for (const text of [index, style]) hash.update(`${text.length}\n${text}`);
    for (const { packed } of Object.values(FILES)) hash.update(`${packed.byteLength}\n`).update(new Uint8Array(packed));
    const version = hash.digest("hex").slice(0, 16);
    built = { version, page: index.replaceAll("{version}", version).replace("/* console.css */", () => style) };
  }
  return built;
}

const VARY = "Accept, Accept-Encoding";

function takesGzip(context: Context): boolean {
  return context.req.header("accept-encoding")?.includes("gzip") === true;
}

/** True if the client that asks for `/` wants a page. A program that accepts any type does not. */
export function wantsPage({ headers }: Request): boolean {
  return headers.get("accept")?.includes("text/html") === true;
}

/** The facts that the page names, so that it need not ask first. */
interface Deployment {
  /** `open` needs no key, `sign-in` has an issuer beside keys. */
  access: "open" | "keys" | "sign-in" | "unknown";
  /** Tells whether a guard moderates. */
  guard: "yes" | "no";
  /** Tells whether stored responses are listed, with time and cost. */
  list: "yes" | "no";
  /** Types of the hosted tools that a request may name, with a space between. */
  tools: string;
}

/** The types of hosted tools that the deployment has what they need for. */
function hostedTools({ offeredKinds, servers, images, searxngUrl, braveApiKey }: ToolConfig): string[] {
  const hasSearch = servers.browser !== undefined || searxngUrl !== undefined || braveApiKey !== undefined;
  return [
    ...(hasSearch && offeredKinds.has("browser") ? ["web_search"] : []),
    ...(servers.python && offeredKinds.has("python") ? ["code_interpreter"] : []),
    ...(images && offeredKinds.has("image_generation") ? ["image_generation"] : []),
    ...(servers.container && offeredKinds.has("container") ? ["container"] : []),
  ];
}

function deploymentOf({ env }: Context<AppEnv>): Deployment {
  try {
    const { wantsKeys, allowAnonymous, signIn, guard, listsResponses, tools } = loadConfig(env);
    const open = allowAnonymous ? "open" : "unknown";
    const access = wantsKeys ? (signIn ? "sign-in" : "keys") : open;
    return {
      access,
      guard: guard ? "yes" : "no",
      list: listsResponses ? "yes" : "no",
      tools: hostedTools(tools).join(" "),
    };
  } catch {
    // The page is served by a Worker with a wrong configuration, too: its calls say what is wrong.
    return { access: "unknown", guard: "no", list: "no", tools: "" };
  }
}

/** The page itself. Browsers ask for it every time, and get a 304 if they have it. */
export function consolePage(context: Context<AppEnv>): Response {
  const { version, page } = theConsole();
  const deployment = Object.entries(deploymentOf(context));
  const tag = `"${version}-${deployment.map(([, value]) => value.replaceAll(" ", ".")).join("-")}"`;
  const headers = { ...HEADERS, "cache-control": "no-cache", etag: `W/${tag}` };
  if (context.req.header("if-none-match")?.includes(tag)) return context.body(null, 304, headers);
  const type = { "content-type": "text/html; charset=utf-8" };
  const text = deployment.reduce((html, [name, value]) => html.replace(`{${name}}`, value), page);
  // The runtime compresses it then. Plain workerd has no proxy in front of it that would.
  const encoding = takesGzip(context) && { "content-encoding": "gzip" };
  return context.body(text, 200, { ...headers, vary: VARY, ...encoding, ...type });
}

/** The files of the console: `/assets/{version}/…`. Files of other versions do not exist any more. */
export const consoleFiles = new Hono().get("/assets/:version/:name{.+}", (context, next) => {
  const { version, name } = context.req.param();
  const file = Object.hasOwn(FILES, name) ? FILES[name] : undefined;
  if (!file || version !== theConsole().version) return next();
  const headers = { ...HEADERS, vary: VARY, "content-type": file.type, "cache-control": FOR_GOOD };
  if (!takesGzip(context)) return context.body(gunzipSync(new Uint8Array(file.packed)), 200, headers);
  return new Response(file.packed, { headers: { ...headers, "content-encoding": "gzip" }, encodeBody: "manual" });
});
