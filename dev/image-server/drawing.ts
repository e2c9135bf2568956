import type { Raster } from "./png.ts";

/**
 * Draws the shapes and colours that a prompt names, such as "two red circles on blue". It is a rasteriser, not a model:
 * the same prompt always gives the same image. A prompt without such words gives a pattern of its own.
 */

type Colour = readonly [red: number, green: number, blue: number];

const COLOURS: Readonly<Record<string, Colour>> = {
  black: [20, 20, 24],
  blue: [40, 90, 210],
  brown: [120, 75, 40],
  green: [40, 150, 70],
  grey: [128, 128, 128],
  orange: [240, 140, 30],
  pink: [245, 140, 180],
  purple: [130, 60, 170],
  red: [215, 40, 45],
  white: [250, 250, 248],
  yellow: [250, 215, 50],
};

/** True if a point is inside a shape, by its distance from the centre as a share of the radius. */
const SHAPES: Readonly<Record<string, (x: number, y: number) => boolean>> = {
  circle: (x, y) => x * x + y * y <= 1,
  square: (x, y) => Math.max(Math.abs(x), Math.abs(y)) <= 0.85,
  triangle: (x, y) => y <= 0.8 && y >= -1 && Math.abs(x) <= (y + 1) / 1.8,
  diamond: (x, y) => Math.abs(x) + Math.abs(y) <= 1,
  ring: (x, y) => x * x + y * y <= 1 && x * x + y * y >= 0.4,
};

const NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];

interface Figure {
  isInside: (x: number, y: number) => boolean;
  colour: Colour;
  count: number;
}

interface Scene {
  /** Undefined: transparent, or the previous content. */
  background: Colour | undefined;
  figures: readonly Figure[];
}

/** The scene that a prompt describes. */
function sceneOf(prompt: string): Scene {
  const words = prompt.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  const figures: Figure[] = [];
  let background: Colour | undefined;
  let colour: Colour | undefined;
  let count = 1;
  let isBehind = false;
  for (const word of words) {
    const isInside = SHAPES[word] ?? SHAPES[word.replace(/s$/, "")];
    const named = COLOURS[word];
    if (word === "on" || word === "background") isBehind = word === "on";
    else if (NUMBERS.includes(word)) count = NUMBERS.indexOf(word);
    else if (named && isBehind) [background, isBehind] = [named, false];
    else if (named) colour = named;
    else if (isInside) {
      figures.push({ isInside, colour: colour ?? colourOf(word), count });
      [colour, count] = [undefined, 1];
    }
  }
  if (figures.length > 0 || background) return { background, figures };
  const shapes = Object.values(SHAPES);
  const seed = hashOf(prompt);
  const isInside = shapes[seed % shapes.length] ?? (() => true);
  return {
    background: colourOf(`${prompt}.`),
    figures: [{ isInside, colour: colourOf(prompt), count: 1 + (seed % 9) }],
  };
}

/** Draws on a raster, or on a new one of the size. `isTransparent`: nothing is behind the figures. */
export function draw(
  prompt: string,
  {
    width,
    height,
    base,
    isTransparent,
  }: { width: number; height: number; base?: Raster | undefined; isTransparent: boolean },
): Raster {
  const { background, figures } = sceneOf(prompt);
  const pixels = base ? base.pixels.slice() : new Uint8Array(width * height * 4);
  const raster = base ? { width: base.width, height: base.height, pixels } : { width, height, pixels };
  const behind = background ?? (base ? undefined : COLOURS.white);
  if (behind && !isTransparent) fill(raster, () => true, behind);
  for (const { isInside, colour, count } of figures) {
    const columns = Math.ceil(Math.sqrt(count));
    const rows = Math.ceil(count / Math.max(1, columns));
    const radius = 0.4 * Math.min(raster.width / columns, raster.height / rows);
    for (let index = 0; index < count; index += 1) {
      const x = ((index % columns) + 0.5) * (raster.width / columns);
      const y = (Math.floor(index / columns) + 0.5) * (raster.height / rows);
      fill(raster, (px, py) => isInside((px - x) / radius, (py - y) / radius), colour);
    }
  }
  return raster;
}

function fill({ width, height, pixels }: Raster, isInside: (x: number, y: number) => boolean, colour: Colour): void {
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      if (!isInside(x + 0.5, y + 0.5)) continue;
      const at = (y * width + x) * 4;
      pixels.set(colour, at);
      pixels[at + 3] = 255;
    }
  }
}

function colourOf(text: string): Colour {
  const all = Object.values(COLOURS);
  return all[hashOf(text) % all.length] ?? [0, 0, 0];
}

function hashOf(text: string): number {
  let state = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1) state = Math.imul(state ^ text.charCodeAt(index), 0x01000193);
  return state >>> 0;
}
