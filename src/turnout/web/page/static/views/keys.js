// Projects with their quotas and what they use, and all keys. For root.

import { del, get, post, session, useLoad } from "../api.js";
import { attempt, confirm, Dialog, notify } from "../dialog.js";
import { bytes, number } from "../format.js";
import { html, useState } from "../html.js";
import { Ago, Empty, Failure, Loading, Section } from "../parts.js";
import { Table } from "../table.js";
import { useReload } from "./changes.js";
import { Copy } from "./copy.js";
import { styles } from "./styles.js";

await styles("keys.css");

export default function Keys() {
  if (!session.value.root) return html`<${Empty} title="Only the root key manages keys and projects" />`;
  return html`<${ForRoot} />`;
}

function ForRoot() {
  const projects = useLoad((abort) => get("/projects", {}, abort), []);
  const keys = useLoad((abort) => get("/keys", {}, abort), []);
  const [creating, setCreating] = useState(null);
  const reload = () => {
    projects.reload();
    keys.reload();
  };
  useReload(projects.reload, { pause: 2000 });
  if (!projects.data || !keys.data) {
    const error = projects.error ?? keys.error;
    return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Loading} />`;
  }
  const revoke = async (key) => {
    const own = key.id === session.value.key;
    const text = `${key.id}${key.label ? ` (${key.label})` : ""} of project ${key.project} stops working at once, and its sessions and streams end. ${own ? "You are signed in with it." : ""}`;
    if (!(await confirm({ title: "Revoke the key?", text, yes: "Revoke", danger: true }))) return;
    await attempt(async () => {
      await del(`/keys/${encodeURIComponent(key.id)}`);
      notify(`Revoked ${key.id}`);
      reload();
    });
  };
  const sorted = [...keys.data.keys].sort((one, other) => other.root - one.root || one.project.localeCompare(other.project) || (other.created ?? 0) - (one.created ?? 0));
  return html`
    <div class="keys-view">
      <${Section} title="Projects" aside="quotas and weights are in the settings: [projects.X]">
        <${Table} label="projects" rows=${projects.data.projects} columns=${PROJECT} id=${(row) => row.name} />
      <//>
      <${Section} title="Keys" aside=${html`<button class="primary" onClick=${() => setCreating({ project: "" })}>Create a key</button>`}>
        <${Table} label="keys" rows=${sorted} columns=${keyColumns(revoke)} id=${(row) => row.id} />
      <//>
      ${creating && html`<${Create} projects=${projects.data.projects} close=${() => (setCreating(null), reload())} />`}
    </div>
  `;
}

/** What is used of a limit, as text and as a bar; without a limit only the text. */
function Use({ used, limit, text }) {
  if (limit === null || limit === undefined) return html`<span class="number">${used ? text(used) : html`<span class="quiet">0</span>`}</span>`;
  const share = limit > 0 ? used / limit : 1;
  return html`
    <span class="use">
      <span class="number">${text(used)} <span class="quiet">/ ${text(limit)}</span></span>
      <span class="meter" aria-hidden="true"><i style=${{ width: `${Math.min(100, 100 * share)}%`, background: share >= 1 ? "var(--amber)" : "var(--blue)" }}></i></span>
    </span>
  `;
}

const rounded = (value) => number(Math.round(value * 10) / 10);
const PROJECT = [
  { name: "job", title: "Project", cell: (row) => html`<a href="/jobs?project=${encodeURIComponent(row.name)}">${row.name}</a>` },
  { name: "jobs-used", title: "Running jobs", cell: (row) => html`<${Use} used=${row.running} limit=${row.quota.jobs} text=${number} />` },
  { name: "cpu-used", title: "CPU", cell: (row) => html`<${Use} used=${row.uses.cpu} limit=${row.quota.cpus} text=${rounded} />` },
  { name: "memory-used", title: "Memory", cell: (row) => html`<${Use} used=${row.uses.memory} limit=${row.quota.memory} text=${bytes} />` },
  { name: "gpus-used", title: "GPUs", cell: (row) => html`<${Use} used=${row.uses.gpus} limit=${row.quota.gpus} text=${number} />` },
  { name: "waiting", title: "Waiting", cell: (row) => html`<span class="number">${row.waiting || html`<span class="quiet">0</span>`}${row.quota.waiting !== null && html`<span class="quiet"> / ${row.quota.waiting.toLocaleString("en")}</span>`}</span>` },
  { name: "weight", title: "Weight", kind: "number", cell: (row) => number(row.quota.weight) },
  { name: "count", title: "Keys", kind: "number", cell: (row) => row.keys },
];

const keyColumns = (revoke) => [
  { name: "key", title: "Key", cell: (row) => html`<code>${row.id}</code>${row.account && html`<br /><span class="quiet small">${row.account.client_email}</span>`}` },
  { name: "project", title: "Project", cell: (row) => (row.root ? html`<b>all (root)</b>` : row.project) },
  { name: "note", title: "Label", cell: (row) => row.label },
  { name: "created", title: "Created", kind: "number", cell: (row) => html`<${Ago} at=${row.created} />` },
  { name: "actions", title: "", kind: "number", cell: (row) => (row.root ? null : html`<button class="danger" aria-label="revoke ${row.id}" onClick=${() => revoke(row)}>Revoke</button>`) },
];

function Create({ projects, close }) {
  const [made, setMade] = useState(null);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const create = async (event) => {
    const { project, label } = Object.fromEntries(new FormData(event.target));
    setBusy(true);
    try {
      setMade(await post("/keys", { project: project.trim(), label: label.trim() }));
    } catch (problem) {
      setError(problem.message);
    }
    setBusy(false);
  };
  if (made) return html`<${Made} made=${made} close=${close} />`;
  return html`
    <${Dialog} title="Create a key" close=${close} action=${create}>
      <label>Project<input name="project" required autofocus list="projects" maxlength="64" spellcheck="false" autocapitalize="off" autocomplete="off" /></label>
      <datalist id="projects">${projects.map(({ name }) => html`<option value=${name}></option>`)}</datalist>
      <label>Label<input name="label" maxlength="200" placeholder="whose it is" autocomplete="off" /></label>
      <p class="quiet small">A key belongs to one project. A new name creates the project.</p>
      ${error && html`<p class="problem" role="alert">${error}</p>`}
      <footer>
        <button type="button" onClick=${close}>Cancel</button>
        <button class="primary" disabled=${busy}>Create</button>
      </footer>
    <//>
  `;
}

/** The only time that the secret is shown: it is in this answer and nowhere else in the page. */
function Made({ made, close }) {
  const line = `export TURNOUT_ENDPOINT=${location.origin} TURNOUT_KEY=${made.id}:${made.secret}`;
  return html`
    <${Dialog} title="The new key of ${made.project}" close=${close} action=${close}>
      <p>The secret is shown only now. Save it, or send it to the person who will use the key.</p>
      <dl class="facts">
        <dt>Key id</dt><dd><${Copied} text=${made.id} name="id" label="the key id" /></dd>
        <dt>Secret</dt><dd><${Copied} text=${made.secret} name="secret" label="the secret" /></dd>
      </dl>
      <div>
        <p class="quiet small">For the command lines:</p>
        <${Copied} text=${line} name="line" label="the line" />
      </div>
      <footer><button class="primary" autofocus>Done</button></footer>
    <//>
  `;
}

const Copied = ({ text, name, label }) => html`<span class="copied"><code class=${name}>${text}</code><${Copy} text=${text} label=${label} /></span>`;
