// Numbers that a program printed: `step 10 loss=0.25, accuracy: 0.9` gives points of loss and accuracy at step 10.

import { plain } from "./ansi.js";

const PAIR = /(?:^|[\s,;|({[])["']?([A-Za-z][\w/.-]{0,40})["']?\s*(?:[=:]\s*|\s)(-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?=$|[\s,;|)}\]/%])/g;
const STEPS = ["global_step", "step", "steps", "iteration", "iter", "epoch", "batch"];
const KNOWN = /loss|acc|err|auc|f1|precision|recall|perplexity|ppl|bleu|rouge|reward|score|lr|learning_rate|grad|norm|mse|mae|rmse|iou|map|throughput|samples|tokens|speed/i;
const MOST = 8;

/** Of lines in the order of time: [{name, points: [[x, y], …]}] and whether x is a step or a time in seconds. */
export function printedMetrics(lines) {
  const series = new Map();
  let stepped = 0;
  let timed = 0;
  for (const line of lines) {
    const pairs = [...plain(line.text).matchAll(PAIR)].map(([, name, value]) => [name, Number(value)]);
    const step = STEPS.map((name) => pairs.find(([one]) => one.toLowerCase() === name)).find(Boolean);
    for (const [name, value] of pairs) {
      if (STEPS.includes(name.toLowerCase()) || !KNOWN.test(name)) continue;
      if (!series.has(name)) series.set(name, []);
      series.get(name).push({ step: step?.[1], at: line.at / 1e9, value });
      if (step) stepped += 1;
      else timed += 1;
    }
  }
  const byStep = stepped > timed;
  const found = [...series].map(([name, points]) => ({ name, points: inOrder(points, byStep) })).filter(({ points }) => points.length > 1);
  return { byStep, series: found.sort((one, other) => other.points.length - one.points.length).slice(0, MOST) };
}

function inOrder(points, byStep) {
  const known = new Map();
  for (const { step, at, value } of points) {
    const x = byStep ? step : at;
    if (x !== undefined) known.set(x, value);
  }
  return [...known].sort(([one], [other]) => one - other);
}
