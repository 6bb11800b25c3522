// The replicas of a job as a grid, each with small curves of what it uses.

import { get, jobPath, useLoad } from "./api.js";
import { Curve } from "./curve.js";
import { html, useEffect, useState } from "./html.js";
import { Badge, isLive, Section } from "./parts.js";
import { address } from "./router.js";

const MOST = 60;
const SAMPLE_MS = 60_000; // the service takes a sample a minute
const KINDS = [["cpu", "CPU", "--blue"], ["memory", "Mem", "--violet"], ["gpu", "GPU", "--green"], ["gpu_memory", "GPU mem", "--teal"]];

export function Gang({ job }) {
  const [all, setAll] = useState(false);
  const { data, reload } = useLoad((abort) => get(jobPath(job.id, "/samples"), {}, abort), [job.id, job.attempt, job.state]);
  useEffect(() => {
    if (!isLive(job.state)) return undefined;
    const timer = setInterval(() => document.hidden || reload(), SAMPLE_MS);
    return () => clearInterval(timer);
  }, [job.id, job.state]);
  const shown = all ? job.replicas : job.replicas.slice(0, MOST);
  if (!shown.length) return null;
  const rest = job.replicas.length - shown.length;
  return html`
    <${Section} title=${job.replicas.length === 1 ? "Replica" : `${job.replicas.length} replicas`} aside=${summary(job.replicas)}>
      <ul class="gang ${shown.length > 12 ? "dense" : ""}">
        ${shown.map((replica) => html`<${Replica} key=${replica.name} ...${{ job, replica }} samples=${data?.samples[replica.name] ?? []} />`)}
      </ul>
      ${rest > 0 && html`<button onClick=${() => setAll(true)}>Show ${rest} more</button>`}
    <//>
  `;
}

function summary(replicas) {
  const counts = new Map();
  for (const { state } of replicas) counts.set(state, (counts.get(state) ?? 0) + 1);
  return replicas.length > 1 ? [...counts].map(([state, number]) => `${number} ${state}`).join(" · ") : "";
}

function Replica({ job, replica, samples }) {
  const used = KINDS.filter(([kind]) => samples.some((sample) => sample[kind] !== null));
  return html`
    <li class="panel replica">
      <header>
        <a href=${address(`/jobs/${job.id}/logs`, job.replicas.length > 1 ? { replica: replica.name } : {})}>${replica.name}</a>
        <${Badge} state=${replica.state} />
      </header>
      <p class="quiet small">${[replica.node && `on ${replica.node}`, replica.gpus && `GPU ${replica.gpus}`, replica.restarts > 0 && `${replica.restarts} restarts`, outcome(replica)].filter(Boolean).join(" · ")}</p>
      ${used.length > 0 && html`<div class="curves">${used.map(([kind, name, colour]) => html`<${Use} ...${{ kind, name, colour, samples }} />`)}</div>`}
    </li>
  `;
}

const outcome = ({ exit_code: code, signal, message }) => (signal ? `signal ${signal}` : code !== null ? `exit code ${code}` : message);

function Use({ kind, name, colour, samples }) {
  const last = samples.at(-1)[kind];
  return html`
    <figure style=${{ "--stroke": `var(${colour})` }}>
      <${Curve} points=${samples.map((sample) => [sample.at, sample[kind]])} most=${100} label="${name} in percent" />
      <figcaption><span>${name}</span><b class="number">${last === null ? "" : `${last < 10 ? last.toFixed(1) : Math.round(last)} %`}</b></figcaption>
    </figure>
  `;
}
