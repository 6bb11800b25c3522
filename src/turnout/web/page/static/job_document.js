// The request that made a job, the requests of the other APIs that make the same, and what Turnout made of it.

import { get, jobPath, useLoad } from "./api.js";
import { html, useState } from "./html.js";
import { APIS, Failure, Loading, Section } from "./parts.js";

const OWN = "turnout";

export function Document({ job }) {
  const [words, setWords] = useState(job.dialect);
  const others = Object.keys(APIS).filter((api) => api !== job.dialect);
  const names = { [job.dialect]: APIS[job.dialect] ?? job.dialect, ...Object.fromEntries(others.map((api) => [api, APIS[api]])), [OWN]: "Turnout" };
  const shown = { [job.dialect]: job.document, [OWN]: job.spec };
  return html`
    <${Section}
      title="Spec"
      aside=${html`
        <span class="switch" role="group" aria-label="words">
          ${Object.entries(names).map(([key, name]) => html`<button class="plain" aria-pressed=${words === key} onClick=${() => setWords(key)}>${name}</button>`)}
        </span>
      `}
    >
      ${words in shown ? html`<${Code} document=${shown[words]} />` : html`<${Translated} job=${job} api=${words} />`}
    <//>
  `;
}

/** The job as a request of another API; it can be copied, and *Clone* makes a job of it. */
function Translated({ job, api }) {
  const { data, error, reload } = useLoad((abort) => get(jobPath(job.id, "/documents"), {}, abort), [job.id]);
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Loading} />`;
  const { document, notes } = data.documents[api];
  return html`
    ${notes.length > 0 && html`<ul class="notes small">${notes.map((note) => html`<li>${note}</li>`)}</ul>`}
    <${Code} document=${document} />
  `;
}

const Code = ({ document }) =>
  document ? html`<pre class="code document">${JSON.stringify(document, null, 2)}</pre>` : html`<p class="quiet">It is encrypted, and its key is missing.</p>`;
