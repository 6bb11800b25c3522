// A trial's values as text.

import { number } from "../format.js";

/** A parameter's value or a metric. */
export const shown = (value) => (typeof value === "number" ? number(value) : value === null || value === undefined ? "" : String(value));

/** `trial 3: accuracy 0.92, lr 0.01, optimizer adam`. */
export function trialText(trial, search) {
  const value = trial.value === null ? trial.state : `${search.metric} ${shown(trial.value)}`;
  return `trial ${trial.number}: ${[value, ...Object.entries(trial.parameters).map(([name, one]) => `${name} ${shown(one)}`)].join(", ")}`;
}
