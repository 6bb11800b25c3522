// Keyboard shortcuts. A view binds keys while it is shown; nothing is caught while somebody types.

import { useLayoutEffect } from "./html.js";

const bound = []; // the last one wins

/** `{ j: ["next job", handler] }`. The handler gets the event. */
export function useKeys(bindings) {
  useLayoutEffect(() => {
    bound.push(bindings);
    return () => bound.splice(bound.indexOf(bindings), 1);
  });
}

/** All keys that work now, with what they do. */
export function helpText() {
  const found = new Map();
  for (const bindings of bound) for (const [key, [text]] of Object.entries(bindings)) found.set(key, text);
  return [...found];
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (typing && event.target.type !== "checkbox") {
    if (event.key === "Escape") typing.blur();
    return;
  }
  if (event.key === "Enter" && event.target.closest?.("a, button, summary")) return;
  for (const bindings of [...bound].reverse()) {
    const found = bindings[event.key];
    if (!found) continue;
    event.preventDefault();
    found[1](event);
    return;
  }
});
