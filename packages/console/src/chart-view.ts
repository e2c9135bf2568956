import { html, nothing, render } from "lit-html";
import { beside } from "./beside.ts";
import type { Chart, DrawnChart } from "./chart.ts";

/** A chart. A table beside it has the same figures for people who cannot see it. */
export class ChartView {
  element = document.createElement("figure");
  #place = document.createElement("div");
  #chart: Chart | undefined;
  #drawn: DrawnChart | undefined;
  /** The index of the point under the cursor. */
  #at: number | undefined;
  #fault = false;

  constructor() {
    this.element.className = "chart card stack tight";
    // Its colours are those of the axes and of the lines behind the chart.
    this.#place.className = "h-56 overflow-hidden border-line text-muted";
    this.#place.role = "img";
    new ResizeObserver(() => (this.#drawn ? this.#fit() : void this.#plot())).observe(this.#place);
    const redraw = () => this.#drawn?.redraw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }

  show(chart: Chart) {
    this.#chart = chart;
    this.#at = undefined;
    this.#place.ariaLabel = `${chart.title}. The figures are in the table below.`;
    this.#draw();
    this.#drawn?.remove();
    this.#drawn = undefined;
    void this.#plot();
  }

  #fit() {
    if (this.#place.clientWidth > 0) this.#drawn?.fit();
  }

  async #plot() {
    const chart = this.#chart;
    try {
      const { drawChart }: typeof import("./chart.ts") = await beside("chart.js");
      // Another chart may have come meanwhile. What is not on the page has no size.
      if (chart !== this.#chart || !chart || this.#drawn || this.#place.clientWidth === 0) return;
      this.#drawn = drawChart(this.#place, chart, this.#colourOf, (index) => {
        this.#at = index;
        this.#draw();
      });
    } catch {
      this.#fault = true;
      this.#draw();
    }
  }

  #colourOf = (index: number) => {
    const swatch = this.element.querySelectorAll(".swatch")[index];
    return swatch ? getComputedStyle(swatch).backgroundColor : "gray";
  };

  #draw() {
    const chart = this.#chart;
    if (!chart) return;
    const { title, note, series } = chart;
    render(
      html`
        <figcaption class="buttons spread">
          <strong>${title}</strong>
          <span class="note" aria-hidden=${this.#at === undefined ? nothing : "true"}>${this.#at === undefined ? note : this.#pointText(chart, this.#at)}</span>
        </figcaption>
        ${this.#fault ? html`<p class="notice">The chart could not be loaded. The table has its figures.</p>` : this.#place}
        ${legend(series.map(({ name, colour }, index) => [name, `var(--series-${colour ?? index})`]))}
      `,
      this.element,
    );
  }

  #pointText({ times, series, labelOf, inWords }: Chart, at: number) {
    const amounts = series.flatMap(({ name, values }) => {
      const value = values[at];
      return value == null || value === 0 ? [] : [`${series.length > 1 ? `${name} ` : ""}${inWords(value)}`];
    });
    return `${labelOf(times[at] ?? 0)}: ${amounts.join(", ") || "–"}`;
  }
}

/** The names of what is drawn, each with its colour. */
export function legend(entries: readonly (readonly [name: string, colour: string])[]) {
  return html`<ul class="legend buttons gap-x-5 gap-y-1 text-sm">
    ${entries.map(([name, colour]) => html`<li class="inline-flex items-center gap-1.5 wrap-anywhere"><span class="swatch size-3 rounded-sm" .style=${`background: ${colour}`} aria-hidden="true"></span>${name}</li>`)}
  </ul>`;
}
