// The objective of each trial, and the best so far as a line.

import uPlot from "uplot";
import { Chart } from "../chart.js";
import { duration, milliseconds } from "../format.js";
import { html, useMemo, useRef } from "../html.js";
import { Section } from "../parts.js";
import { trialText } from "./trial.js";

const BY = [["time", "time"], ["trial", "trial"]];

export function BestSoFar({ search, trials, hovered, by, onBy }) {
  const done = useMemo(() => inTurn(search, trials, by), [trials, by]);
  const latest = useRef();
  latest.current = done;
  const data = useMemo(() => [done.map(({ x }) => x), done.map(({ trial }) => trial.value), done.map(({ best }) => best)], [done]);
  const options = useMemo(
    () => ({
      legend: { show: false },
      scales: { x: { time: false, range: (_, low, high) => (high > low ? [low, high] : [low - 1, high + 1]) } },
      cursor: { points: { size: 8 }, drag: { x: false, y: false }, focus: { prox: 30 } },
      hooks: { setCursor: [(plot) => (hovered.value = plot.cursor.idx === null || plot.cursor.idx === undefined ? 0 : (latest.current[plot.cursor.idx]?.trial.number ?? 0))] },
    }),
    [],
  );
  const text = hovered.value ? trialText(trials.find((trial) => trial.number === hovered.value) ?? trials[0], search) : "";
  const series = [
    { label: search.metric, colour: "--quiet", paths: () => null, points: { show: true, size: 6, width: 1 } },
    { label: "best so far", colour: "--accent", width: 2, paths: uPlot.paths.stepped({ align: 1 }) },
  ];
  const aside = html`
    by ${BY.map(([name, title]) => html` <button class="plain" aria-pressed=${by === name} onClick=${() => onBy(name)}>${title}</button>`)}
  `;
  return html`
    <${Section} title="Best so far" aside=${aside}>
      <div class="panel best-so-far">
        <p class="readout small" aria-live="off">${text || html`<span class="quiet">${search.metric}, each trial a dot; the line is the best so far</span>`}</p>
        ${done.length
          ? html`<${Chart} key=${by} label=${`best ${search.metric} so far: ${done.at(-1).best}`} data=${data} series=${series} height=${212} options=${options} ticks=${by === "time" ? ticks : undefined} />`
          : html`<p class="quiet none">No trial has a result yet</p>`}
      </div>
    <//>
  `;
}

const ticks = (seconds) => (seconds ? duration(seconds) : "0");

/** The trials with a result, in the order in which they ended, each with the best value until then. */
function inTurn(search, trials, by) {
  const done = trials.filter((trial) => trial.value !== null && (by === "trial" || trial.ended));
  const begin = search.started ?? search.created;
  const place = (trial) => (by === "trial" ? trial.number : (milliseconds(trial.ended) - milliseconds(begin)) / 1000);
  const better = search.goal === "max" ? Math.max : Math.min;
  let best;
  return done
    .map((trial) => ({ trial, x: place(trial) }))
    .sort((one, other) => one.x - other.x)
    .map(({ trial, x }) => {
      best = best === undefined ? trial.value : better(best, trial.value);
      return { trial, x, best };
    });
}
