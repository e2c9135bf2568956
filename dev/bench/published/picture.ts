/** A picture of figures: horizontal bars, one for each target. */

export interface Picture {
  title: string;
  /** The unit, and which direction is better. */
  note: string;
  bars: readonly { name: string; value: number; text: string }[];
}

const [WIDTH, LINE, LABEL, VALUE] = [440, 22, 150, 70] as const;

const escaped = (text: string) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");

/** Draws an SVG, readable on a light and on a dark page. Bars of `serve` are blue, others grey. */
export function drawPicture({ title, note, bars }: Picture): string {
  const longest = Math.max(...bars.map(({ value }) => value));
  const lines = bars.map(({ name, value, text }, index) => {
    const top = 52 + index * LINE;
    const width = longest > 0 ? Math.max(1, (value / longest) * (WIDTH - LABEL - VALUE)) : 1;
    return [
      `<text x="${LABEL - 8}" y="${top + 13}" text-anchor="end">${escaped(name)}</text>`,
      `<rect x="${LABEL}" y="${top + 2}" width="${width.toFixed(1)}" height="14" fill="${name.startsWith("serve") ? "#2f6fde" : "#9aa3ad"}"/>`,
      `<text x="${(LABEL + width + 6).toFixed(1)}" y="${top + 13}">${escaped(text)}</text>`,
    ].join("\n");
  });
  const height = 60 + bars.length * LINE;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" font-family="system-ui, sans-serif" font-size="12">
<rect width="${WIDTH}" height="${height}" fill="#fff"/>
<text x="12" y="20" font-size="14" font-weight="600">${escaped(title)}</text>
<text x="12" y="38" fill="#57606a">${escaped(note)}</text>
${lines.join("\n")}
</svg>
`;
}
