/**
 * `npm run create-key -- TENANT`: makes an API key, and the entry for it in the secret API_KEYS. `npm run create-key --
 * --admin NAME`: makes a root key, and its entry in ADMIN_KEY.
 */
import { createHash, randomBytes } from "node:crypto";

const isAdmin = process.argv[2] === "--admin";
const name = process.argv[isAdmin ? 3 : 2] ?? "";
if (!/^[A-Za-z0-9_-]{1,64}$/.test(name)) {
  console.error("Usage: npm run create-key -- TENANT, or --admin NAME   (letters, digits, _ and -, at most 64)");
  process.exit(1);
}
const variable = isAdmin ? "ADMIN_KEY" : "API_KEYS";
const key = `${isAdmin ? "sk-admin" : "sk"}-${randomBytes(32).toString("base64url")}`;
const sha256 = createHash("sha256").update(key).digest("hex");
console.log(`Key, for the ${isAdmin ? "administrator" : "client"} (shown only now):\n  ${key}\n`);
console.log(`Entry for ${variable} (separate several with commas):\n  ${name}:${sha256}\n`);
console.log(`Set it with: npx wrangler secret put ${variable}`);
