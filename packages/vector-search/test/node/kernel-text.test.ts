import { readFile } from "node:fs/promises";
import { expect, it } from "vitest";
import wabt from "wabt";

const file = (name: string) => new URL(`../../src/${name}`, import.meta.url);

it("kernel.wasm is kernel.wat, assembled", async () => {
  const module = (await wabt()).parseWat("kernel.wat", await readFile(file("kernel.wat"), "utf8"), { simd: true });
  const assembled = module.toBinary({}).buffer;
  expect(Buffer.from(await readFile(file("kernel.wasm"))).equals(assembled)).toBe(true);
});
