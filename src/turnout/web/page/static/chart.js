// A chart with axes: uPlot, drawn again when its data, its size or the theme change.

import uPlot from "uplot";
import { html, useEffect, useRef } from "./html.js";
import { number } from "./format.js";

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const scheme = matchMedia("(prefers-color-scheme: dark)");

/** Resolves `light-dark()`, which a canvas does not know. */
function colour(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/**
 * `data`: [xs, ys, ys, …]; `series`: [{label, colour?, …}] for each ys; `time`: whether xs are seconds since 1970.
 * `ticks`: the text at a place of the x axis. Other options of uPlot go into `options`.
 */
export function Chart({ data, series, time = false, height = 180, label, ticks, options = {} }) {
  const element = useRef();
  const plot = useRef();
  const shape = JSON.stringify([series.map((one) => one.label), time, height]);
  useEffect(() => {
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot(configuration(element.current, { series, time, height, ticks, options }), data, element.current);
    };
    make();
    const sized = new ResizeObserver(() => {
      const width = element.current?.clientWidth;
      if (width && plot.current && width !== plot.current.width) plot.current.setSize({ width, height });
    });
    sized.observe(element.current);
    const themed = new MutationObserver(make);
    themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    scheme.addEventListener("change", make);
    return () => {
      sized.disconnect();
      themed.disconnect();
      scheme.removeEventListener("change", make);
      plot.current.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => {
    plot.current?.setData(data);
  }, [data]);
  return html`<div class="chart" role="img" aria-label=${label} ref=${element}></div>`;
}

export const COLOURS = ["--accent", "--blue", "--green", "--amber", "--violet", "--red", "--teal", "--quiet"];

function configuration(element, { series, time, height, ticks, options }) {
  const line = colour("--line");
  const axis = {
    stroke: colour("--quiet"),
    grid: { stroke: line, width: 1 },
    ticks: { show: false },
    font: `11px ${style("--sans")}`,
  };
  const drawn = series.map(({ colour: name, ...one }, at) => ({
    width: 1.5,
    points: { show: false },
    stroke: colour(name ?? COLOURS[at % COLOURS.length]),
    value: (_, value) => (value === null || value === undefined ? "" : number(value)),
    spanGaps: true,
    ...one,
  }));
  return {
    width: element.clientWidth || 300,
    height,
    scales: { x: { time } },
    axes: [{ ...axis, size: 30, ...(ticks && { values: (_, found) => found.map(ticks) }) }, { ...axis, size: 52, values: (_, ticks) => ticks.map(number) }],
    series: [{}, ...drawn],
    legend: { show: series.length > 1, live: false },
    cursor: { points: { size: 6 } },
    ...options,
  };
}
