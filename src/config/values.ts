import { z } from "zod";

/** What several variables are made of. */

/** A URL to call. A user name in it cannot be sent, and a fragment never is. */
export function httpUrl() {
  return z
    .url({ protocol: /^https?$/, error: "expected a URL that begins with http:// or https://" })
    .refine((url) => !hasCredentials(url), "expected a URL without user name and password")
    .refine((url) => !url.includes("#"), "expected a URL without a fragment ('#')");
}

function hasCredentials(url: string): boolean {
  if (!URL.canParse(url)) return false;
  const { username, password } = new URL(url);
  return username !== "" || password !== "";
}

/** The URL of a model server: paths are put behind it. */
export function serverUrl() {
  return httpUrl().refine((url) => !url.includes("?"), "expected a URL without a query: paths are put behind it");
}

/** A secret that stands in a header. The line break that a shell adds at its end is no part of it. */
export function headerSecret() {
  return z
    .string()
    .trim()
    .regex(/^[\x21-\x7e]+$/, "expected visible ASCII characters without spaces: it is sent in a header");
}
