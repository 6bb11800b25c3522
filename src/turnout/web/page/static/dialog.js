// Dialogs, and notices that go away by themselves.

import { html, signal, useEffect, useRef } from "./html.js";

/**
 * A modal dialog while it is drawn. Escape and a click beside it call `close`. `action`: the form's submit handler.
 */
export function Dialog({ title, close, action, children }) {
  const element = useRef();
  useEffect(() => {
    element.current.showModal();
  }, []);
  const submit = (event) => {
    event.preventDefault();
    action?.(event);
  };
  return html`
    <dialog ref=${element} onClose=${close} onClick=${(event) => event.target === element.current && close()} aria-label=${title}>
      <form onSubmit=${submit}>
        <h2>${title}</h2>
        ${children}
      </form>
    </dialog>
  `;
}

const question = signal(null);

/** Asks before something that cannot be undone. A promise of whether the answer is yes. */
export function confirm({ title, text, yes, danger = false }) {
  return new Promise((resolve) => {
    question.value = { title, text, yes, danger, resolve };
  });
}

const notices = signal([]);
let counted = 0;

/** Says something for a few seconds; `kind`: "info" or "error". */
export function notify(text, kind = "info") {
  const notice = { id: (counted += 1), text, kind };
  notices.value = [...notices.value.slice(-3), notice];
  setTimeout(() => dismiss(notice.id), kind === "error" ? 10_000 : 4000);
}

/** Runs it, and says its error. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    notify(error.message, "error");
    return undefined;
  }
}

function dismiss(id) {
  notices.value = notices.value.filter((one) => one.id !== id);
}

/** Drawn once, by the shell. */
export function Overlays() {
  const asked = question.value;
  const answer = (value) => {
    asked.resolve(value);
    question.value = null;
  };
  return html`
    ${asked &&
    html`
      <${Dialog} title=${asked.title} close=${() => answer(false)} action=${() => answer(true)}>
        <p>${asked.text}</p>
        <footer>
          <button type="button" onClick=${() => answer(false)}>Cancel</button>
          <button class=${asked.danger ? "danger" : "primary"} autofocus>${asked.yes}</button>
        </footer>
      <//>
    `}
    <div class="notices" role="status" aria-live="polite">
      ${notices.value.map(
        ({ id, text, kind }) => html`
          <p key=${id} class="notice ${kind}">${text}<button class="plain" aria-label="dismiss" onClick=${() => dismiss(id)}>×</button></p>
        `,
      )}
    </div>
  `;
}
