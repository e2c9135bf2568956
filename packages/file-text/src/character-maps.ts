/// <reference path="./cmaps.d.ts" />

/**
 * The predefined character maps of Chinese, Japanese and Korean fonts (ISO 32000-1, 9.7.5.2), which files name and do not contain. They
 * are one file of data (`build.js`), which loads with the first file that names one.
 */
let maps: ReadonlyMap<string, Uint8Array> | undefined;

async function load(): Promise<ReadonlyMap<string, Uint8Array>> {
  const { default: data } = await import("../dist/cmaps.bin");
  const length = new DataView(data).getUint32(0);
  const names = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length))) as Record<string, number>;
  const all = new Map<string, Uint8Array>();
  let at = 4 + length;
  for (const [name, bytes] of Object.entries(names)) {
    all.set(name, new Uint8Array(data, at, bytes));
    at += bytes;
  }
  return all;
}

/** Gives pdf.js the maps that a file names. It has no other data: fonts are not drawn. */
export class CharacterMaps {
  async fetch({ kind, filename }: { kind: string; filename: string }): Promise<Uint8Array> {
    // No request waits for a promise of another.
    maps ??= await load();
    const map = kind === "cMapUrl" ? maps.get(filename) : undefined;
    if (!map) throw new Error(`There is no ${filename}.`);
    return map.slice();
  }
}
