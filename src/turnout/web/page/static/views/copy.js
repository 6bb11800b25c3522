// A button that copies a text.

import { attempt, notify } from "../dialog.js";
import { html } from "../html.js";

/** `label`: what it copies, such as "the URL". */
export function Copy({ text, label }) {
  const copy = () =>
    attempt(async () => {
      await navigator.clipboard.writeText(text);
      notify(`Copied ${label}`);
    });
  return html`
    <button type="button" class="plain copy" title="copy ${label}" aria-label="copy ${label}" onClick=${copy}>
      <svg viewBox="0 0 16 16" width="14" height="14" fill="none" stroke="currentColor" stroke-width="1.4" aria-hidden="true">
        <rect x="5.5" y="5.5" width="8" height="9" rx="1.5" /><path d="M10.5 3.5v-.5a1.5 1.5 0 0 0-1.5-1.5H4A1.5 1.5 0 0 0 2.5 3v7A1.5 1.5 0 0 0 4 11.5h.5" />
      </svg>
    </button>
  `;
}
