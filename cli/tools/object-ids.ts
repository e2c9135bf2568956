import { createHash, createHmac } from "node:crypto";

/** The id that workerd derives from an object's name (`idFromName`). `uniqueKey`: that of its class (`uniqueKeyOf`). */
export function objectId(name: string, uniqueKey: string): string {
  const key = createHash("sha256").update(uniqueKey).digest();
  const mac = (data: string | Buffer) => createHmac("sha256", key).update(data).digest().subarray(0, 16);
  const base = mac(name);
  return Buffer.concat([base, mac(base)]).toString("hex");
}
