// Several trials side by side: what differs, and how their metrics grew.

import { get, jobPath, useLoad } from "../api.js";
import { Chart, COLOURS } from "../chart.js";
import { count } from "../format.js";
import { html, useMemo, useState } from "../html.js";
import { Badge, Lasting, Section } from "../parts.js";
import { Copy } from "./copy.js";
import { shown } from "./trial.js";

export const MOST = 8;

export function Compare({ search, chosen, selected }) {
  const trials = chosen.slice(0, MOST);
  const drop = (trial) => {
    const next = new Set(selected.value);
    next.delete(trial.id);
    selected.value = next;
  };
  const names = [...new Set(trials.flatMap((trial) => Object.keys(trial.parameters)))];
  const metrics = [...new Set([search.metric, ...trials.flatMap((trial) => Object.keys(trial.metrics))])];
  const row = (name, of, kind = "") => {
    const texts = trials.map((trial) => shown(of(trial)));
    const differs = new Set(texts).size > 1;
    return html`<tr key=${name} class=${`${kind} ${differs ? "differs" : ""}`}><th scope="row">${name}</th>${texts.map((text, at) => html`<td key=${trials[at].id}>${text}</td>`)}</tr>`;
  };
  const points = trials.map(({ number, value, parameters }) => ({ trial: number, value, parameters }));
  const aside = html`${chosen.length > MOST && `the first ${MOST} of ${chosen.length} · `}<${Copy} text=${JSON.stringify(points, null, 2)} label="the points as JSON" />`;
  return html`
    <${Section} title="Compare ${count(trials.length, "trial")}" aside=${aside}>
      <div class="panel compare">
        <div class="table" tabindex="0" role="region" aria-label="compared trials">
          <table>
            <thead>
              <tr>
                <th></th>
                ${trials.map(
                  (trial, at) => html`
                    <th key=${trial.id} scope="col">
                      <i class="dot" style=${{ background: `var(${COLOURS[at]})` }}></i> <a href="/jobs/${trial.job}">trial ${trial.number}</a>
                      <button class="plain" aria-label="take trial ${trial.number} away" onClick=${() => drop(trial)}>×</button>
                    </th>
                  `,
                )}
              </tr>
            </thead>
            <tbody>
              <tr><th scope="row">state</th>${trials.map((trial) => html`<td key=${trial.id}><${Badge} state=${trial.state} /></td>`)}</tr>
              ${metrics.map((name) => row(name, (trial) => (name === search.metric ? trial.value : trial.metrics[name]), "objective"))}
              ${names.map((name) => row(name, (trial) => trial.parameters[name]))}
              <tr><th scope="row">ran</th>${trials.map((trial) => html`<td key=${trial.id}><${Lasting} from=${trial.started} to=${trial.ended} /></td>`)}</tr>
            </tbody>
          </table>
        </div>
        <${Curves} ...${{ search, trials, metrics }} />
      </div>
    <//>
  `;
}

function Curves({ search, trials, metrics }) {
  const [chosen, setMetric] = useState(search.metric);
  const metric = metrics.includes(chosen) ? chosen : search.metric;
  const ended = trials.map((trial) => trial.state).join();
  const { data } = useLoad((abort) => get(jobPath(search.id, "/metrics"), {}, abort), [search.id, ended]);
  const drawn = useMemo(() => (data ? curves(data.trials, trials, metric) : null), [data, metric, trials.map((trial) => trial.id).join()]);
  if (!drawn || drawn[0].length < 2) return html`<p class="quiet small">${drawn ? "These trials printed no curve: one value each." : ""}</p>`;
  const series = trials.map((trial, at) => ({ label: `trial ${trial.number}`, colour: COLOURS[at] }));
  return html`
    <div class="compare-curves">
      <p class="small quiet">
        ${metrics.length > 1 ? html`<select aria-label="metric" value=${metric} onChange=${(event) => setMetric(event.target.value)}>${metrics.map((name) => html`<option>${name}</option>`)}</select>` : metric} by step
      </p>
      <${Chart} key=${metric} label="${metric} by step" data=${drawn} series=${series} height=${180} options=${{ legend: { show: false } }} />
    </div>
  `;
}

/** uPlot's columns: the steps of all trials, and the metric of each at them. */
function curves(measured, trials, metric) {
  const byTrial = trials.map((trial) => new Map((measured[trial.number] ?? []).map((row) => [row.step, row.metrics[metric] ?? null])));
  const steps = [...new Set(byTrial.flatMap((one) => [...one.keys()]))].sort((one, other) => one - other);
  return [steps, ...byTrial.map((one) => steps.map((step) => one.get(step) ?? null))];
}
