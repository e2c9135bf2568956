import uPlot from "uplot";
import rules from "uplot/dist/uPlot.min.css" with { type: "text" };

/** Draws charts with uPlot. This is a separate script: it is loaded when there is a chart. */

// The page's policy has the hash of one style sheet. It does not concern rules that a script adopts.
const sheet = new CSSStyleSheet();
sheet.replaceSync(rules);
document.adoptedStyleSheets.push(sheet);

/** The least width for a label below the chart, in pixels. */
const LABEL_WIDTH = 90;

/** Seconds. */
const DAY = 86_400;

/** The distances of the lines behind amounts that are whole numbers. */
const WHOLE = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((factor) => factor * 10 ** power)).flat();

/** Amounts over time, as bars or a line. */
export interface Series {
  name: string;
  /** The number of its colour. By default its place in the list. */
  colour?: number;
  /** One for each time; null where there is none. */
  values: readonly (number | null)[];
}

export interface Chart {
  title: string;
  /** The text beside the title, while no point is under the cursor. */
  note?: string;
  /** Unix seconds, in ascending order and at equal distances. */
  times: readonly number[];
  /** At most `MAX_SERIES`. */
  series: readonly Series[];
  /** True for bars, on top of each other; else lines. */
  isStacked?: boolean;
  /** True if amounts are whole numbers. */
  isWhole?: boolean;
  labelOf: (time: number) => string;
  inWords: (value: number) => string;
  /** For the axis. */
  inShort: (value: number) => string;
  /** Charts of a group show the same time under the cursor. */
  group?: string;
  /** Called when somebody chooses a point, with its index. */
  pick?: (index: number) => void;
}

export interface DrawnChart {
  /** Draws it again, with the colours of the present theme. */
  redraw(): void;
  /** Gives it the size of its place. */
  fit(): void;
  remove(): void;
}

/**
 * Draws a chart.
 * @param place has a width and a height
 * @param colourOf the colour of a series, by its index
 * @param pointed Takes the index of the point under the cursor; undefined if the cursor is elsewhere.
 */
export function drawChart(
  place: HTMLElement,
  chart: Chart,
  colourOf: (series: number) => string,
  pointed: (index: number | undefined) => void,
): DrawnChart {
  const { times, series, isStacked = false, isWhole = false } = chart;
  const muted = () => getComputedStyle(place).color;
  const line = () => getComputedStyle(place).borderBottomColor;
  const font = `12px ${getComputedStyle(place).fontFamily}`;
  const step = (times[1] ?? 0) - (times[0] ?? 0) || 1;
  const size = () => ({ width: place.clientWidth, height: place.clientHeight });
  // Each sum covers the larger one behind it.
  const shown = isStacked ? sumsOf(series.map(({ values }) => values)) : series.map(({ values }) => [...values]);
  const order = isStacked ? [...series.keys()].reverse() : [...series.keys()];
  const plot = new uPlot(
    {
      ...size(),
      // A day is one of UTC's.
      tzDate: (time) => (step >= DAY ? uPlot.tzDate(new Date(time * 1_000), "Etc/UTC") : new Date(time * 1_000)),
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: false, y: false },
        points: isStacked ? { show: false } : {},
        ...(chart.group && { sync: { key: chart.group } }),
      },
      scales: {
        x: { range: (_, min, max) => [min - step / 2, max + step / 2] },
        y: { range: (_, _min, max) => (max > 0 ? uPlot.rangeNum(0, max, 0.1, true) : [0, 1]) },
      },
      axes: [
        {
          space: LABEL_WIDTH,
          values: (_, splits) => splits.map((time) => chart.labelOf(time)),
          ...{ stroke: muted, font, grid: { show: false }, ticks: { show: false }, size: 26 },
        },
        {
          values: (_, splits) => splits.map((value) => chart.inShort(value)),
          ...{ stroke: muted, font, size: 58, grid: { stroke: line, width: 1 }, ticks: { show: false } },
          ...(isWhole && { incrs: WHOLE }),
        },
      ],
      series: [
        {},
        ...order.map((index): uPlot.Series => {
          const colour = () => colourOf(index);
          if (!isStacked) return { stroke: colour, width: 2, points: { size: 5, fill: colour, filter: alone } };
          const paths = uPlot.paths.bars?.({ size: [0.8, 60] });
          return { stroke: colour, fill: colour, width: 0, paths, points: { show: false } };
        }),
      ],
      hooks: { setCursor: [({ cursor }) => pointed(cursor.idx ?? undefined)] },
    },
    [[...times], ...order.map((index) => shown[index] ?? [])],
    place,
  );
  const { pick } = chart;
  if (pick) {
    plot.over.classList.add("cursor-pointer");
    plot.over.addEventListener("click", () => {
      if (plot.cursor.idx != null) pick(plot.cursor.idx);
    });
  }
  return { redraw: () => plot.redraw(), fit: () => plot.setSize(size()), remove: () => plot.destroy() };
}

/** The points that have none beside them: no line goes through them. */
function alone({ data }: uPlot, series: number) {
  const values = data[series] ?? [];
  const has = (index: number) => values[index] != null;
  return [...values.keys()].filter((index) => has(index) && !has(index - 1) && !has(index + 1));
}

/** The sum of each series and those before it. */
function sumsOf(series: readonly (readonly (number | null)[])[]) {
  let below: number[] = [];
  return series.map((values) => {
    below = values.map((value, index) => (value ?? 0) + (below[index] ?? 0));
    return below;
  });
}
