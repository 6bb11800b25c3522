// One search: its best trial so far, importance, and its trials as a table, as parallel coordinates and side by side.

import { get, jobPath, post, useLoad } from "../api.js";
import { attempt, confirm, notify } from "../dialog.js";
import { count } from "../format.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useSignal, useState } from "../html.js";
import { useKeys } from "../keys.js";
import { Api, Badge, Empty, Failure, isLive, Lasting, Loading, Section } from "../parts.js";
import { setQuery } from "../router.js";
import { Table } from "../table.js";
import { BestSoFar } from "./best_so_far.js";
import { useReload } from "./changes.js";
import { Compare } from "./compare.js";
import { axesOf, ParallelCoordinates, passes } from "./parallel_coordinates.js";
import { Progress } from "./searches.js";
import { shown, trialText } from "./trial.js";

const ROWS = 100;
const MANY = 300; // trials above which they are read again less often

export default function Search({ params, query }) {
  const search = useLoad((abort) => get(`/searches/${encodeURIComponent(params.id)}`, {}, abort), [params.id]);
  const trials = useLoad((abort) => allTrials(params.id, abort), [params.id]);
  const reload = () => {
    search.reload();
    trials.reload();
  };
  const found = search.data;
  useReload(reload, { concerns: (job) => job.id === found?.id, pause: (trials.data?.length ?? 0) > MANY ? 5000 : 1000 });
  useEffect(() => {
    if (found) document.title = `${found.name} · Turnout`;
  }, [found?.name]);
  if (!found) return search.error ? html`<${Failure} error=${search.error} retry=${reload} />` : html`<${Loading} />`;
  return html`
    <div class="search">
      <${Heading} search=${found} />
      <${Facts} search=${found} trials=${trials.data ?? []} />
      ${(search.error ?? trials.error) && html`<${Failure} error=${search.error ?? trials.error} retry=${reload} />`}
      ${trials.data?.length
        ? html`<${Trials} search=${found} trials=${trials.data} query=${query} />`
        : trials.data && html`<${Empty} title="No trials yet"><p>${found.waits_for || "Trials appear as soon as the first point is chosen."}</p><//>`}
    </div>
  `;
}

async function allTrials(id, abort) {
  const path = `/searches/${encodeURIComponent(id)}/trials`;
  const found = [];
  let cursor = "";
  do {
    const page = await get(path, { cursor }, abort);
    found.push(...page.trials);
    cursor = page.next;
  } while (cursor);
  return found;
}

function Heading({ search }) {
  const stop = async () => {
    const text = `The search ${search.name} starts no more trials. Its running trials are stopped.`;
    if (!(await confirm({ title: "Stop the search?", text, yes: "Stop", danger: true }))) return;
    await attempt(() => post(jobPath(search.id, "/stop")));
    notify("Stopping the search");
  };
  return html`
    <header class="heading">
      <h1>${search.name}</h1>
      <${Badge} state=${search.state} />
      <${Api} name=${search.dialect} />
      <div class="actions">
        <a class="button" href="/jobs/${search.id}">The job</a>
        ${isLive(search.state) && html`<button class="danger" onClick=${stop}>Stop</button>`}
      </div>
    </header>
  `;
}

function Facts({ search, trials }) {
  const best = bestOf(trials, search.goal);
  const algorithm = search.suggesters.map(({ name, params }) => [name, ...Object.entries(params ?? {}).map(([key, value]) => `${key}=${value}`)].join(" ")).join(", then ");
  return html`
    <dl class="tiles">
      <div class="best">
        <dt>Best ${search.metric}</dt>
        <dd>${best ? html`<b class="number">${shown(best.value)}</b> <a class="small" href="/jobs/${best.job}">trial ${best.number}</a>` : html`<span class="quiet">none yet</span>`}</dd>
      </div>
      <div><dt>Trials</dt><dd><${Progress} row=${search} /></dd></div>
      <div><dt>Objective</dt><dd>${search.goal === "max" ? "Maximize" : "Minimize"} ${search.metric}</dd></div>
      <div><dt>Algorithm</dt><dd>${algorithm || "unknown"}<span class="quiet">, ${search.parallel} at a time</span></dd></div>
      <div><dt>Early stopping</dt><dd>${search.stopping ? stoppingText(search.stopping) : html`<span class="quiet">none</span>`}</dd></div>
      <div><dt>Ran</dt><dd>${search.started ? html`<${Lasting} from=${search.started} to=${search.ended} />` : html`<span class="quiet">${search.waits_for || "not yet"}</span>`}</dd></div>
    </dl>
    ${search.state === "failed" && html`<p class="problem" role="status">${search.message}</p>`}
  `;
}

const stoppingText = ({ kind, startup = 5, warmup = 0, by = "steps" }) =>
  `${kind === "median" ? "median" : "decay curve"} after ${count(startup, "trial")}${warmup ? ` and ${warmup} ${by}` : ""}`;

function Trials({ search, trials, query }) {
  const hovered = useSignal(0);
  const selected = useSignal(new Set());
  const brushes = useSignal({});
  const axes = useMemo(() => axesOf(search, trials), [search, trials]);
  const kept = trials.filter((trial) => passes(trial, axes, brushes.value));
  const chosen = trials.filter((trial) => selected.value.has(trial.id));
  useKeys({
    Escape: [
      "select nothing, clear the ranges",
      () => {
        selected.value = new Set();
        brushes.value = {};
      },
    ],
  });
  return html`
    <div class="overview">
      <${BestSoFar} ...${{ search, trials, hovered }} by=${query.by ?? "time"} onBy=${(by) => setQuery({ by: by === "time" ? "" : by })} />
      <${Importance} ...${{ search, trials }} />
    </div>
    <${ParallelCoordinates} ...${{ search, trials, axes, brushes, hovered, selected }} />
    ${chosen.length > 1 && html`<${Compare} ...${{ search, chosen, selected }} />`}
    <${List} ...${{ search, kept, trials, hovered, selected, brushes }} order=${query.order ?? ""} />
  `;
}

function Importance({ search, trials }) {
  const results = trials.filter((trial) => trial.value !== null).length;
  // Takes the service longer than a trial may last, so it is asked for less often as results add up.
  const [wanted, setWanted] = useState(results);
  useEffect(() => {
    if (!isLive(search.state) || results < 20 || results >= wanted * 1.1) setWanted(results);
  }, [results, search.state]);
  const { data, error, loading } = useLoad((abort) => get(`/searches/${search.id}/importance`, {}, abort), [search.id, wanted]);
  const weights = data?.importance ?? [];
  return html`
    <${Section} title="Importance" aside="share of the variance that a parameter explains">
      <div class="panel importance" aria-busy=${loading}>
        ${error && html`<p class="quiet">${error.message}</p>`}
        ${!weights.length && !error && html`<p class="quiet">${loading ? "Computing…" : "Too few trials with different results"}</p>`}
        <dl>
          ${weights.map(
            ({ name, mean, std }) => html`
              <div key=${name}>
                <dt title=${name}>${name}</dt>
                <dd>
                  <span class="bar-track" aria-hidden="true">
                    <i style=${{ width: `${100 * mean}%` }}></i>
                    <u style=${{ left: `${100 * Math.max(0, mean - std)}%`, width: `${100 * (Math.min(1, mean + std) - Math.max(0, mean - std))}%` }}></u>
                  </span>
                  <span class="number" title=${`± ${(100 * std).toFixed(0)} % between the trees`}>${(100 * mean).toFixed(0)} %</span>
                </dd>
              </div>
            `,
          )}
        </dl>
      </div>
    <//>
  `;
}

function List({ search, kept, trials, hovered, selected, brushes, order }) {
  const [most, setMost] = useState(ROWS);
  const box = useRef();
  const columns = useMemo(() => columnsOf(search, trials), [search.space, search.metrics, trials.length]);
  const natural = search.goal === "max" ? "-value" : "value";
  const used = order || natural;
  const sorted = useMemo(() => inOrder(kept, used), [kept.map((trial) => `${trial.id}${trial.state}`).join(), used]);
  const best = bestOf(trials, search.goal);
  const rows = sorted.slice(0, most).map((trial) => (trial === best ? { ...trial, best: true } : trial));
  const point = (event) => {
    const row = event.target.closest?.("tbody tr");
    hovered.value = row ? (rows[[...row.parentElement.children].indexOf(row)]?.number ?? 0) : 0;
  };
  const ranges = Object.keys(brushes.value).length;
  // With fewer rows the page would get shorter, and scroll away under the pointer that drags a range.
  const [height, setHeight] = useState(0);
  useLayoutEffect(() => {
    if (!ranges) setHeight(box.current.offsetHeight);
  });
  const aside = html`
    ${ranges > 0 && html`${kept.length} of ${trials.length} <button class="plain" onClick=${() => (brushes.value = {})}>Clear the ranges</button>`}
    ${selected.value.size === 1 ? "Select another one to compare" : selected.value.size ? html`<button class="plain" onClick=${() => (selected.value = new Set())}>Select none</button>` : ranges ? "" : "Select two or more to compare"}
  `;
  return html`
    <${Section} title="Trials" aside=${aside}>
      <div class="trials" ref=${box} style=${{ minHeight: ranges ? `${height}px` : "" }} onMouseOver=${point} onMouseLeave=${() => (hovered.value = 0)} onFocusIn=${point}>
        <${Table}
          label="trials"
          rows=${rows}
          columns=${columns}
          id=${(trial) => trial.id}
          href=${(trial) => `/jobs/${trial.job}`}
          selected=${selected}
          order=${used}
          onOrder=${(next) => setQuery({ order: next === natural ? "" : next })}
        />
      </div>
      ${sorted.length > most && html`<p class="more"><button onClick=${() => setMost(most + 5 * ROWS)}>Show more of ${sorted.length}</button></p>`}
    <//>
  `;
}

function columnsOf(search, trials) {
  const known = new Set(trials.flatMap((trial) => Object.keys(trial.parameters)));
  const space = search.space.map(({ name }) => name).filter((name) => known.has(name));
  const parameters = space.length ? space : [...known];
  const numbers = (name) => trials.every(({ parameters: point }) => point[name] === undefined || typeof point[name] === "number");
  return [
    { name: "trial", title: "Trial", sort: "number", cell: (trial) => html`<a href="/jobs/${trial.job}" aria-label=${trialText(trial, search)}>${trial.number}</a>` },
    { name: "state", title: "State", sort: "state", cell: (trial) => html`<${Badge} state=${trial.state} />` },
    { name: "objective", title: search.metric, kind: "number", sort: "value", cell: (trial) => html`<span class=${trial.best ? "is-best" : ""}>${trial.value === null ? "" : shown(trial.value)}</span>` },
    ...search.metrics.slice(1).map(({ name }, at) => ({ name: `metric-${at}`, title: name, kind: "number", sort: `metrics.${name}`, cell: (trial) => shown(trial.metrics[name]) })),
    ...parameters.map((name, at) => ({ name: `parameter-${at}`, title: name, kind: `parameter ${numbers(name) ? "number" : "text"}`, sort: `parameters.${name}`, cell: (trial) => shown(trial.parameters[name]) })),
    { name: "why", title: "", cell: (trial) => (trial.state === "infeasible" ? html`<span class="quiet">${trial.message}</span>` : null) },
    { name: "lasting", title: "Ran", kind: "number", sort: "lasting", cell: (trial) => html`<${Lasting} from=${trial.started} to=${trial.ended} />` },
  ];
}

function inOrder(trials, order) {
  const name = order.replace(/^-/, "");
  const sign = order.startsWith("-") ? -1 : 1;
  const [, group, rest] = /^(metrics|parameters)\.(.*)$/s.exec(name) ?? [];
  const of = (trial) => (group ? trial[group][rest] : name === "lasting" ? trial.started && (trial.ended ?? Infinity) - trial.started : trial[name]);
  const empty = (value) => value === null || value === undefined;
  return [...trials].sort((one, other) => {
    const [a, b] = [of(one), of(other)];
    if (empty(a) || empty(b)) return empty(a) - empty(b) || one.number - other.number;
    return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b))) || one.number - other.number;
  });
}

export function bestOf(trials, goal) {
  const done = trials.filter((trial) => trial.value !== null);
  return done.reduce((best, trial) => (!best || (goal === "max" ? trial.value > best.value : trial.value < best.value) ? trial : best), null);
}
