import { nothing, svg } from "lit-html";

/**
 * Amounts over time as stacked bars. A table beside the plot has the same figures for people who cannot see the plot.
 */
export interface Series {
  name: string;
  /** one for each bar */
  values: readonly number[];
}

const MARGIN = { left: 52, right: 4, top: 12, bottom: 28 };

/** The sizes of the plot, in pixels, and the maximum number of labels below the bars. */
const SIZES = {
  wide: { width: 1_180, height: 280, labels: 8 },
  narrow: { width: 340, height: 240, labels: 3 },
};

/** The same values as in the style sheets. */
const NARROW = "(max-width: 640px)";

/** The number of colours in `operate.css`. */
export const MAX_SERIES = 7;

export interface BarPlot {
  title: string;
  /** of the bars */
  labels: readonly string[];
  /** at most `MAX_SERIES`, the lowest first */
  series: readonly Series[];
  inWords: (value: number) => string;
}

export function barPlot({ title, labels, series, inWords }: BarPlot) {
  const totals = labels.map((_, bar) => series.reduce((sum, { values }) => sum + (values[bar] ?? 0), 0));
  const top = niceTop(Math.max(0, ...totals));
  const size = matchMedia(NARROW).matches ? SIZES.narrow : SIZES.wide;
  const [width, height] = [size.width - MARGIN.left - MARGIN.right, size.height - MARGIN.top - MARGIN.bottom];
  const step = width / Math.max(1, labels.length);
  const y = (value: number) => MARGIN.top + height * (1 - value / top);
  const gap = Math.min(4, step * 0.2);
  const every = Math.ceil(labels.length / size.labels);
  const lines = [0, 0.25, 0.5, 0.75, 1].map((share) => share * top);
  return svg`<svg class="plot" viewBox=${`0 0 ${size.width} ${size.height}`} role="img" aria-label=${`${title}. The figures are in the table below.`}>
    ${lines.map(
      (
        value,
      ) => svg`<line class="grid" x1=${MARGIN.left} x2=${size.width - MARGIN.right} y1=${y(value)} y2=${y(value)} />
      <text class="axis" x=${MARGIN.left - 8} y=${y(value) + 4} text-anchor="end">${shortly(value)}</text>`,
    )}
    ${labels.map((label, bar) => {
      let below = 0;
      const x = MARGIN.left + bar * step + gap / 2;
      const parts = series.map(({ name, values }, index) => {
        const value = values[bar] ?? 0;
        if (value === 0) return nothing;
        const rect = svg`<rect class=${`series-${index}`} x=${x} width=${step - gap} y=${y(below + value)} height=${Math.max(0.5, y(below) - y(below + value))}><title>${label}: ${name} ${inWords(value)}</title></rect>`;
        below += value;
        return rect;
      });
      const text =
        bar % every === 0
          ? svg`<text class="axis" x=${MARGIN.left + (bar + 0.5) * step} y=${size.height - 8} text-anchor="middle">${label}</text>`
          : nothing;
      return svg`${parts}${text}`;
    })}
  </svg>`;
}

/** The next round number at or above `most`. */
function niceTop(most: number) {
  if (most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return ([1, 2, 4, 5, 8, 10].find((factor) => factor * power >= most) ?? 10) * power;
}

function round(value: number) {
  return Number(value.toPrecision(6));
}

const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

function shortly(value: number) {
  return short.format(round(value));
}
