// One job: the verdict first, then its replicas, attempts, data, metrics, spec and events.

import { del, get, jobPath, post, useLoad } from "../api.js";
import { attempt, confirm, Dialog, notify } from "../dialog.js";
import { clock, count, duration, milliseconds, now } from "../format.js";
import { html, useEffect, useMemo, useState } from "../html.js";
import { useKeys } from "../keys.js";
import { Line } from "../lines.js";
import { Ago, Api, APIS, Badge, Failure, isLive, Lasting, Loading, Section } from "../parts.js";
import { address, navigate } from "../router.js";
import { Gang } from "../gang.js";
import { Document } from "../job_document.js";
import { Metrics } from "../job_metrics.js";
import { useLiveJob } from "../live_job.js";

export default function Job({ params }) {
  const { data: job, error, reload } = useLiveJob(params.id);
  useKeys({
    l: ["show the log", () => job && navigate(`/jobs/${job.id}/logs`)],
    u: ["back to the jobs", () => navigate("/jobs")],
  });
  useEffect(() => {
    if (job) document.title = `${job.name} · ${job.state} · Turnout`;
  }, [job]);
  if (!job) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Loading} />`;
  return html`
    <article class="job">
      <${Heading} job=${job} reload=${reload} />
      <${Verdict} job=${job} />
      <div class="columns">
        <div>
          <${Gang} job=${job} />
          <${Metrics} job=${job} />
          <${Attempts} job=${job} />
          <${Events} events=${job.events} />
          <${Changes} lines=${job.audit} />
        </div>
        <aside>
          <${Facts} job=${job} />
          <${Data} job=${job} />
          <${Document} job=${job} />
        </aside>
      </div>
    </article>
  `;
}

function Heading({ job, reload }) {
  const [cloning, setCloning] = useState(false);
  const live = isLive(job.state);
  const stop = async () => {
    if (!(await confirm({ title: "Stop this job?", text: job.name, yes: "Stop", danger: true }))) return;
    await attempt(() => post(jobPath(job.id, "/stop")));
    reload();
  };
  const remove = async () => {
    const text = live ? `${job.name} is stopped, then deleted with its log.` : `${job.name} is deleted with its log.`;
    if (!(await confirm({ title: "Delete this job?", text, yes: "Delete", danger: true }))) return;
    if (await attempt(() => del(jobPath(job.id)))) navigate("/jobs");
  };
  return html`
    <header class="heading">
      <h1>${job.name}</h1>
      <span class="large"><${Badge} state=${job.state} /></span>
      <div class="actions">
        <a class="button primary" href="/jobs/${job.id}/logs">Log</a>
        ${job.state === "running" && html`<${Shells} job=${job} />`}
        <button onClick=${() => setCloning(true)}>Clone</button>
        ${live && html`<button disabled=${job.state === "stopping"} onClick=${stop}>Stop</button>`}
        <button class="danger" onClick=${remove}>Delete</button>
      </div>
      ${cloning && html`<${Clone} job=${job} close=${() => setCloning(false)} />`}
    </header>
  `;
}

/** Links to shells and to the program's own page. They are valid once, so they are made when somebody asks. */
function Shells({ job }) {
  const { data } = useLoad((abort) => get(jobPath(job.id, "/shells"), {}, abort), [job.id, job.attempt]);
  const names = Object.keys(data?.uris ?? {});
  const open = async (name) => {
    const tab = window.open("", "_blank");
    const found = await attempt(() => get(jobPath(job.id, "/shells")));
    if (found?.uris[name]) tab.location = found.uris[name];
    else tab.close();
  };
  const shells = names.filter((name) => !name.endsWith(":dashboard"));
  const pages = names.filter((name) => name.endsWith(":dashboard"));
  return html`
    ${pages.map((name) => html`<button onClick=${() => open(name)}>Program's page</button>`)}
    ${shells.length === 1 && html`<button onClick=${() => open(shells[0])}>Shell</button>`}
    ${shells.length > 1 &&
    html`<select aria-label="open a shell" value="" onChange=${(event) => (open(event.target.value), (event.target.value = ""))}>
      <option value="">Shell…</option>
      ${shells.map((name) => html`<option>${name}</option>`)}
    </select>`}
  `;
}

function Clone({ job, close }) {
  const [problem, setProblem] = useState("");
  const submit = async (event) => {
    const { name, api, changes } = Object.fromEntries(new FormData(event.target));
    try {
      const body = { api, ...(name && { name }), ...(changes.trim() && { changes: JSON.parse(changes) }) };
      const made = await post(jobPath(job.id, "/clone"), body);
      notify(`Created ${made.name}`);
      close();
      navigate(`/jobs/${made.id}`);
    } catch (error) {
      setProblem(error.message);
    }
  };
  return html`
    <${Dialog} title="Clone ${job.name}" close=${close} action=${submit}>
      <label>Name<input name="name" placeholder="the same, with a number" autofocus /></label>
      <label>API<select name="api" defaultValue=${job.dialect}>${Object.entries(APIS).map(([api, name]) => html`<option value=${api} selected=${api === job.dialect}>${name}</option>`)}</select></label>
      <label>Changes<textarea name="changes" rows="4" class="mono" spellcheck="false" placeholder='{"path.in.the.document": "new value"}'></textarea></label>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      <footer><button type="button" onClick=${close}>Cancel</button><button class="primary">Create</button></footer>
    <//>
  `;
}

/** What happened, in sentences, with the lines of the log that matter. */
function Verdict({ job }) {
  const [first, ...others] = job.why.length ? job.why : [sentence(job)];
  return html`
    <section class="verdict panel ${job.state}" aria-label="verdict">
      <p class="what">${first} <span class="quiet">${when(job)}</span></p>
      ${others.length > 0 && html`<ul>${others.map((text) => html`<li>${text}</li>`)}</ul>`}
      ${job.queue && html`<p class="quiet">Place ${job.queue.place} of ${job.queue.of} in the queue.</p>`}
      ${job.last_lines &&
      html`
        <div class="lines" aria-label="last lines of ${job.last_lines.replica}">
          ${job.last_lines.lines.map((text) => html`<${Line} text=${text} />`)}
        </div>
        <p class="small"><a href=${address(`/jobs/${job.id}/logs`, { jump: "error" })}>First error in the log</a> · <a href="/jobs/${job.id}/logs">whole log</a></p>
      `}
    </section>
  `;
}

const sentence = (job) =>
  ({
    queued: "It waits in the queue.",
    preparing: "It is preparing: inputs are fetched and processes start.",
    running: "It is running.",
    stopping: "It is being stopped.",
    succeeded: "It succeeded.",
    failed: "It failed.",
    stopped: "It was stopped.",
  })[job.state];

function when(job) {
  if (job.ended) return html`<${Ago} at=${job.ended} />${job.started && html`, after <${Lasting} from=${job.started} to=${job.ended} />`}`;
  if (job.started) return html`for <${Lasting} from=${job.started} />`;
  return html`waiting for <${Lasting} from=${job.created} />`;
}

function Facts({ job }) {
  const role = job.spec?.roles ?? [];
  return html`
    <${Section} title="About">
      <dl class="facts">
        <dt>API</dt><dd><${Api} name=${job.dialect} /> <span class="quiet">${job.place}</span></dd>
        <dt>Project</dt><dd><a href=${address("/jobs", { project: job.project })}>${job.project}</a></dd>
        <dt>Cluster</dt><dd>${job.cluster}</dd>
        <dt>Created</dt><dd>${clock(job.created)}${job.owner && html` <span class="quiet">by <a href=${address("/jobs", { owner: job.owner })}>${job.owner}</a></span>`}</dd>
        ${job.started && html`<dt>Started</dt><dd>${clock(job.started)} <span class="quiet">waited ${duration((job.started - job.created) / 1e9)}</span></dd>`}
        ${job.ended && html`<dt>Ended</dt><dd>${clock(job.ended)}</dd>`}
        <dt>Priority</dt><dd><${Priority} job=${job} /></dd>
        ${role.map((one) => html`<dt>${one.name}</dt><dd>${resources(one)}<code class="command">${[...(one.program.command ?? []), ...(one.program.args ?? [])].join(" ")}</code></dd>`)}
        ${Object.keys(job.labels).length > 0 && html`<dt>Labels</dt><dd>${Object.entries(job.labels).map(([key, value]) => html`<a class="label" href=${address("/jobs", { label: value ? `${key}=${value}` : key })}>${value ? `${key}=${value}` : key}</a> `)}</dd>`}
        <dt>Id</dt><dd class="mono small">${job.id}<br />${job.uuid}</dd>
        ${job.workspaces.length > 0 && html`<dt>Workspace</dt><dd class="mono small">${job.workspaces.map((path) => html`${path}<br />`)}</dd>`}
        ${job.older.length > 0 && html`<dt>Older</dt><dd>${job.older.map((one) => html`<a href="/jobs/${one.id}"><${Badge} state=${one.state} /></a> `)}</dd>`}
      </dl>
    <//>
  `;
}

function resources({ replicas = 1, resources: needs = {}, machine }) {
  const parts = [count(replicas, "replica")];
  if (machine) parts.push(machine);
  if (needs.millicores) parts.push(`${needs.millicores / 1000} CPU`);
  if (needs.memory) parts.push(`${Math.round(needs.memory / 2 ** 30)} GiB`);
  if (needs.gpus) parts.push(`${needs.gpus} GPU`);
  return parts.join(", ");
}

function Priority({ job }) {
  if (!isLive(job.state)) return job.priority;
  const change = (event) => attempt(() => post(jobPath(job.id, "/priority"), { priority: Number(event.target.value) }));
  return html`<select aria-label="priority" value=${job.priority} onChange=${change}>${[1, 2, 3].map((one) => html`<option>${one}</option>`)}</select>`;
}

function Data({ job }) {
  const mounts = job.spec?.mounts ?? [];
  if (!mounts.length) return null;
  const kind = (mount) => (mount.package ? "code" : mount.read_only ? "input" : mount.output || mount.fetch === false ? "output" : "input and output");
  return html`
    <${Section} title="Data">
      <ul class="data">
        ${mounts.map((mount) => html`<li><span class="quiet small">${kind(mount)}</span><${Source} url=${mount.source} /><span class="quiet mono small">${mount.target}</span></li>`)}
      </ul>
    <//>
  `;
}

/** A URL of an object store, as a link into the storage browser. */
export function Source({ url }) {
  const match = /^(cos|obs|gs|s3):\/\/(.+)$/.exec(url);
  return match ? html`<a class="mono" href="/storage/${match[2].split("/").map(encodeURIComponent).join("/")}">${url}</a>` : html`<span class="mono">${url}</span>`;
}

/** Each attempt as a bar between the creation and the end, or now. */
function Attempts({ job }) {
  const end = job.ended ? milliseconds(job.ended) : now.value;
  const start = milliseconds(job.created);
  const runs = useMemo(
    () => [
      ...job.attempts.map((one) => ({ number: one.attempt, from: one.started, to: one.ended, state: "failed", text: one.message || one.reason })),
      ...(job.attempt > job.attempts.length ? [{ number: job.attempt, from: job.started, to: job.ended, state: job.state, text: job.message }] : []),
    ],
    [job],
  );
  const share = (at) => Math.max(0, Math.min(100, ((at - start) / Math.max(1, end - start)) * 100));
  if (!runs.length) return null;
  return html`
    <${Section} title=${runs.length > 1 ? `${runs.length} attempts` : "Time line"} aside=${`${clock(job.created)} – ${job.ended ? clock(job.ended, { date: false }) : "now"}`}>
      <ol class="attempts">
        ${runs.map(({ number, from, to, state, text }) => {
          const left = from ? share(milliseconds(from)) : 100;
          const width = Math.max(0.5, (to ? share(milliseconds(to)) : 100) - left);
          return html`
            <li key=${number}>
              <a href=${address(`/jobs/${job.id}/logs`, { attempt: number })}>${number}</a>
              <div class="track"><i class=${state} style=${{ left: `${Math.min(left, 99.5)}%`, width: `${width}%` }}></i></div>
              <span class="number quiet"><${Lasting} from=${from} to=${to} /></span>
              ${text && runs.length > 1 && html`<span class="quiet small">${text}</span>`}
            </li>
          `;
        })}
      </ol>
    <//>
  `;
}

function Events({ events }) {
  return html`
    <${Section} title="Events">
      <ol class="events">
        ${events.map((event) => html`<li><time class="number quiet" title=${clock(event.at)}>${clock(event.at, { date: false })}</time><span class="kind">${event.kind}</span><span>${event.message === event.kind ? "" : event.message}</span></li>`)}
      </ol>
    <//>
  `;
}

/** The lines of the audit trail about the job. */
function Changes({ lines }) {
  if (!lines.length) return null;
  return html`
    <${Section} title="Who did what">
      <ol class="events">
        ${lines.map(
          (line) => html`
            <li key=${line.number}>
              <time class="number quiet" title=${clock(line.at)}>${clock(line.at, { date: false })}</time>
              <span class="kind">${line.api}</span>
              <span>${line.call} <span class="quiet">by ${line.who} from ${line.peer}${line.code && `: refused, ${line.code}`}</span></span>
            </li>
          `,
        )}
      </ol>
    <//>
  `;
}
