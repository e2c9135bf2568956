import { createHash } from "node:crypto";
import { type Context, Hono } from "hono";
import colours from "../../packages/console/dist/code-colours.js?raw";
import style from "../../packages/console/dist/console.css?raw";
import formulas from "../../packages/console/dist/formulas.js?raw";
import script from "../../packages/console/dist/main.js?raw";
import icon from "../../packages/console/src/icon.svg?raw";
import index from "../../packages/console/src/index.html?raw";

/**
 * The console: a page at `/` and the files that it consists of. They hold nothing of anybody's: who wants to see more than a form for a
 * key has to show one to the API.
 */

/** A year: the name of a file's folder changes with any file. */
const FOR_GOOD = "public, max-age=31536000, immutable";

/**
 * Nothing but this origin's files, no inline script or style, no markup from strings (lit-html's templates are the exception, which are
 * this console's own), and no page around it.
 */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
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

/** The files of the page, by their names in the browser. */
const FILES: Readonly<Record<string, { text: string; type: string }>> = {
  "main.js": { text: script, type: "text/javascript; charset=utf-8" },
  "code-colours.js": { text: colours, type: "text/javascript; charset=utf-8" },
  "formulas.js": { text: formulas, type: "text/javascript; charset=utf-8" },
  "console.css": { text: style, type: "text/css; charset=utf-8" },
  "icon.svg": { text: icon, type: "image/svg+xml" },
};

interface Console {
  /** Names the files as they are: a hash of them all. */
  version: string;
  page: string;
}

let built: Console | undefined;

/** The page, with the folder of its files in it. */
function theConsole(): Console {
  if (!built) {
    const hash = createHash("sha256");
    for (const text of [index, ...Object.values(FILES).map((file) => file.text)])
      hash.update(`${text.length}\n${text}`);
    const version = hash.digest("hex").slice(0, 16);
    built = { version, page: index.replaceAll("{version}", version) };
  }
  return built;
}

/** Headers of a text that the runtime compresses as it goes out, for who takes that: plain workerd has nothing before it that would. */
function compressed(context: Context): Record<string, string> {
  const vary = "Accept, Accept-Encoding";
  return context.req.header("accept-encoding")?.includes("gzip") ? { vary, "content-encoding": "gzip" } : { vary };
}

/** True if the client that asks for `/` wants a page. A program that takes anything does not. */
export function wantsPage({ headers }: Request): boolean {
  return headers.get("accept")?.includes("text/html") === true;
}

/** The page itself. It is asked for anew each time, and answered with a 304 where the browser has it. */
export function consolePage(context: Context): Response {
  const { version, page } = theConsole();
  const headers = { ...HEADERS, "cache-control": "no-cache", etag: `W/"${version}"` };
  if (context.req.header("if-none-match")?.includes(`"${version}"`)) return context.body(null, 304, headers);
  return context.body(page, 200, { ...headers, ...compressed(context), "content-type": "text/html; charset=utf-8" });
}

/** The files of the console: `/assets/{version}/…`. Files of other versions do not exist any more. */
export const consoleFiles = new Hono().get("/assets/:version/:name{.+}", (context, next) => {
  const { version, name } = context.req.param();
  const file = Object.hasOwn(FILES, name) ? FILES[name] : undefined;
  if (!file || version !== theConsole().version) return next();
  const headers = { ...HEADERS, ...compressed(context), "content-type": file.type, "cache-control": FOR_GOOD };
  return context.body(file.text, 200, headers);
});
