// The numbers that a job printed, as charts: those of one replica, over its whole log.

import { get, jobPath, useLoad } from "./api.js";
import { Chart, COLOURS } from "./chart.js";
import { html, useEffect, useMemo, useState } from "./html.js";
import { printedMetrics } from "./metrics.js";
import { number } from "./format.js";
import { isLive, Section } from "./parts.js";

const LINES = 4000; // the last ones, all of them
const PLACES = 20; // in the rest of a longer log
const LINES_THERE = 100;
const TRIED = 4; // replicas, until one has printed numbers
const RELOAD_MS = 30_000;

export function Metrics({ job }) {
  const [replica, setReplica] = useState("");
  const { data, reload } = useLoad((abort) => printed(job, replica, abort), [job.id, job.state, replica]);
  useEffect(() => {
    if (!isLive(job.state)) return undefined;
    const timer = setInterval(() => document.hidden || reload(), RELOAD_MS);
    return () => clearInterval(timer);
  }, [job.id, job.state, replica]);
  const { byStep, series } = useMemo(() => data?.metrics ?? printedMetrics([]), [data]);
  if (!series.length && !replica) return null;
  const summary = `printed, by ${byStep ? "step" : "time"}${data?.whole === false ? `; of the log before its last ${LINES} lines, a selection` : ""}`;
  return html`
    <${Section} title="Metrics" aside=${html`<span>${summary}</span> ${job.replicas.length > 1 && html`<${Choice} ...${{ job, shown: replica || data.replica, choose: setReplica }} />`}`}>
      ${!series.length && html`<p class="quiet">${replica} has printed no numbers.</p>`}
      <div class="charts">
        ${series.map(({ name, points }, at) => {
          const values = [points.map(([x]) => x), points.map(([, y]) => y)];
          return html`
            <figure key=${name} class="panel">
              <figcaption><span>${name}</span><b class="number">${number(points.at(-1)[1])}</b></figcaption>
              <${Chart} data=${values} series=${[{ label: name, colour: COLOURS[at % COLOURS.length] }]} time=${!byStep} height=${120} label="${name} over ${byStep ? "steps" : "time"}" />
            </figure>
          `;
        })}
      </div>
    <//>
  `;
}

const Choice = ({ job, shown, choose }) => html`
  <select aria-label="replica" value=${shown} onChange=${(event) => choose(event.target.value)}>
    ${job.replicas.map(({ name }) => html`<option selected=${name === shown}>${name}</option>`)}
  </select>
`;

/** The numbers of a replica; without one, those of the first that printed some. */
async function printed(job, replica, abort) {
  const names = replica ? [replica] : job.replicas.slice(0, TRIED).map(({ name }) => name);
  let found = null;
  for (const name of job.started ? names : []) {
    const { lines, whole } = await logOf(job, name, abort);
    found = { replica: name, whole, metrics: printedMetrics(lines) };
    if (found.metrics.series.length) break;
  }
  return found;
}

/** The last lines of a replica's log, and lines at even distances of what is before them. */
async function logOf(job, replica, abort) {
  const ask = (path, query) => get(jobPath(job.id, path), { replica, ...query }, abort);
  const last = await ask("/logs/lines", { back: true, limit: LINES });
  const lines = last.lines.reverse();
  if (last.over) return { lines, whole: true };
  const { size } = await ask("/logs/extent", {});
  const places = Array.from({ length: PLACES }, (_, place) => Math.floor((place * size) / PLACES));
  const before = [];
  for (const position of places) {
    const { at } = await ask("/logs/extent", { position });
    before.push(...(await ask("/logs/lines", { since: at, limit: LINES_THERE })).lines);
  }
  return { lines: [...before, ...lines], whole: false };
}
