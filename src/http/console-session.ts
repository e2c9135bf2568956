import { hkdfSync } from "node:crypto";
import { unixSeconds } from "@responses-edge/responses-api/response";
import { EncryptJWT, type JWTPayload, jwtDecrypt } from "jose";
import { type Config, ROLES, type SignInConfig } from "../config/index.ts";
import { wantsSocket } from "../socket/upgrade.ts";
import type { TokenHolder } from "./jwt.ts";

/**
 * The session of a user who signed in to the console at the issuer: a sealed cookie that scripts cannot read, and that
 * only pages of this server may use. Nothing of it is stored here.
 */

/** The names of the cookies, by purpose. Browsers accept `__Host-` only from this exact host over https. */
const NAMES = { session: "responses_edge_session", login: "responses_edge_login" } as const;
type Purpose = keyof typeof NAMES;

/** A longer `Cookie` header is ignored. UTF-16 units. */
const MAX_COOKIES = 32 * 1024;

function isSecure({ redirectUrl }: SignInConfig): boolean {
  return redirectUrl.startsWith("https:");
}

function nameOf(purpose: Purpose, config: SignInConfig): string {
  return `${isSecure(config) ? "__Host-" : ""}${NAMES[purpose]}`;
}

/** The key of a purpose, so that a cookie of one purpose is not valid for another. */
function keyOf(purpose: Purpose, { sessionSecret }: SignInConfig): Uint8Array {
  return new Uint8Array(hkdfSync("sha256", sessionSecret, "", `responses-edge console ${purpose}`, 32));
}

/**
 * The `Set-Cookie` of a sealed cookie. The issuer's page leads back here, and a browser sends no `Strict` cookies then:
 * the cookie of a login in progress is `Lax`. `seconds`: how long the cookie is valid.
 */
export async function sealedCookie(
  purpose: Purpose,
  claims: JWTPayload,
  seconds: number,
  config: SignInConfig,
): Promise<string> {
  const sealed = await new EncryptJWT(claims)
    .setProtectedHeader({ alg: "dir", enc: "A256GCM" })
    .setExpirationTime(unixSeconds() + seconds)
    .encrypt(keyOf(purpose, config));
  return cookie(purpose, sealed, seconds, config);
}

/** The `Set-Cookie` that deletes a cookie. */
export function noCookie(purpose: Purpose, config: SignInConfig): string {
  return cookie(purpose, "", 0, config);
}

function cookie(purpose: Purpose, value: string, seconds: number, config: SignInConfig): string {
  const attributes = [`Max-Age=${seconds}`, "Path=/", "HttpOnly", `SameSite=${purpose === "login" ? "Lax" : "Strict"}`];
  if (isSecure(config)) attributes.push("Secure");
  return [`${nameOf(purpose, config)}=${value}`, ...attributes].join("; ");
}

/** The claims of a request's cookie; undefined without a valid one. */
export async function openedCookie(
  purpose: Purpose,
  { headers }: Request,
  config: SignInConfig,
): Promise<JWTPayload | undefined> {
  const text = headers.get("cookie") ?? "";
  if (text.length > MAX_COOKIES) return undefined;
  const name = nameOf(purpose, config);
  for (const entry of text.split(";")) {
    const [key = "", value = ""] = entry.trim().split("=", 2);
    if (key !== name || value === "") continue;
    const options = { keyManagementAlgorithms: ["dir"], contentEncryptionAlgorithms: ["A256GCM"] };
    const opened = await jwtDecrypt(value, keyOf(purpose, config), options).catch(() => undefined);
    if (opened) return opened.payload;
  }
  return undefined;
}

/**
 * True if a page of this server has sent the request. The browser marks requests that other sites' pages cause. A
 * WebSocket's upgrade has only `Origin`. A proxy may have ended TLS, so hosts are compared, not schemes.
 */
export function isFromOwnPage(request: Request): boolean {
  const { headers, url } = request;
  const site = headers.get("sec-fetch-site");
  if (site !== null && !wantsSocket(request)) return site === "same-origin";
  const origin = URL.parse(headers.get("origin") ?? "");
  return origin !== null && origin.host === (headers.get("host") ?? new URL(url).host);
}

/** The signed-in user of a page of this server; undefined for every other request. */
export async function signedIn(request: Request, { signIn }: Config): Promise<TokenHolder | undefined> {
  if (!signIn || !isFromOwnPage(request)) return undefined;
  const claims = await openedCookie("session", request, signIn);
  if (!claims) return undefined;
  const { tenant, sub = "" } = claims;
  const role = ROLES.find((each) => each === claims.role);
  return { tenant: typeof tenant === "string" ? tenant : undefined, role, subject: sub };
}
