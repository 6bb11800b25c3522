// A small curve without axes, drawn as SVG.

import { html } from "./html.js";

const WIDTH = 100;
const HEIGHT = 28;

/** `points`: [x, y] in order of x; y may be null for a gap. `most`: the y at the top; without it, the largest. */
export function Curve({ points, most, label, width = WIDTH, height = HEIGHT }) {
  const known = points.filter(([, y]) => y !== null && y !== undefined);
  if (known.length < 2) return html`<svg class="curve" viewBox="0 0 ${width} ${height}" role="img" aria-label="${label}: no samples yet"></svg>`;
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const top = most ?? Math.max(...known.map(([, y]) => y), 1e-9);
  const place = ([x, y]) => {
    const across = last > first ? ((x - first) / (last - first)) * width : 0;
    return `${across.toFixed(1)} ${(height - 1 - (Math.min(y, top) / top) * (height - 2)).toFixed(1)}`;
  };
  const runs = [[]];
  for (const point of points) {
    if (point[1] === null || point[1] === undefined) runs.push([]);
    else runs.at(-1).push(place(point));
  }
  const lines = runs.filter((run) => run.length).map((run) => `M${run.join("L")}`);
  const areas = runs
    .filter((run) => run.length > 1)
    .map((run) => `M${run[0].split(" ")[0]} ${height}L${run.join("L")}L${run.at(-1).split(" ")[0]} ${height}Z`);
  return html`
    <svg class="curve" viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="img" aria-label=${label}>
      <path class="area" d=${areas.join("")} /><path class="line" d=${lines.join("")} />
    </svg>
  `;
}
