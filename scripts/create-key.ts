/** `npm run create-key -- TENANT`: makes an API key, and the entry for it in the secret API_KEYS. */
import { createHash, randomBytes } from "node:crypto";

const tenant = process.argv[2] ?? "";
if (!/^[A-Za-z0-9_-]{1,64}$/.test(tenant)) {
  console.error("Usage: npm run create-key -- TENANT   (letters, digits, _ and -, at most 64)");
  process.exit(1);
}
const key = `sk-${randomBytes(32).toString("base64url")}`;
const sha256 = createHash("sha256").update(key).digest("hex");
console.log(`Key, for the client (shown only now):\n  ${key}\n`);
console.log(`Entry for API_KEYS (separate several with commas):\n  ${tenant}:${sha256}\n`);
console.log("Set it with: npx wrangler secret put API_KEYS");
