// Parallel coordinates: each trial is a line through its values, each axis can be limited to a range.

import { COLOURS } from "../chart.js";
import { html, useLayoutEffect, useRef, useState } from "../html.js";
import { Section } from "../parts.js";
import { shown, trialText } from "./trial.js";

const HEIGHT = 260;
const TOP = 34;
const BOTTOM = 18;
const INNER = HEIGHT - TOP - BOTTOM;
const LINES = 2000;
const LEAST_GAP = 96;
const LEAST_BRUSH = 4; // less is a click, which removes the range
const KEY_STEP = 0.05;

/** An axis for each parameter, and the objective as the last one: {name, place(trial): 0…1 or null, ticks}. */
export function axesOf(search, trials) {
  const parameters = search.space.map((parameter) => parameterAxis(parameter, trials));
  const values = trials.map((trial) => trial.value).filter((value) => value !== null);
  if (!values.length) return parameters;
  const objective = numeric(search.metric, (trial) => trial.value, Math.min(...values), Math.max(...values));
  return [...parameters, { ...objective, objective: true, goal: search.goal }];
}

/** Whether a trial is in the range of each axis that has one. */
export function passes(trial, axes, brushes) {
  return axes.every((axis) => {
    const range = brushes[axis.name];
    if (!range) return true;
    const place = axis.place(trial);
    return place !== null && place >= range[0] && place <= range[1];
  });
}

function parameterAxis(parameter, trials) {
  const { name } = parameter;
  const of = (trial) => trial.parameters[name];
  if (parameter.values?.length) {
    const texts = [...new Set(parameter.values.map(String))];
    const at = (text) => (texts.length > 1 ? texts.indexOf(text) / (texts.length - 1) : 0.5);
    const place = (trial) => (of(trial) === undefined || !texts.includes(String(of(trial))) ? null : at(String(of(trial))));
    return { name, place, ticks: texts.map((text) => ({ text, at: at(text) })) };
  }
  const values = trials.map(of).filter((value) => typeof value === "number");
  return numeric(name, (trial) => of(trial) ?? null, parameter.low ?? Math.min(...values), parameter.high ?? Math.max(...values), parameter.scale);
}

function numeric(name, of, low, high, scale = "linear") {
  const bend = scale === "log" ? Math.log : scale === "reverse_log" ? (value) => -Math.log(low + high - value) : (value) => value;
  const width = bend(high) - bend(low);
  const at = (value) => (width > 0 ? (bend(value) - bend(low)) / width : 0.5);
  const place = (trial) => (of(trial) === null ? null : Math.min(1, Math.max(0, at(of(trial)))));
  const middle = scale === "log" ? Math.sqrt(low * high) : (low + high) / 2;
  const ticks = (width > 0 ? [low, middle, high] : [low]).map((value) => ({ text: shown(Number(value.toPrecision(3))), at: at(value) }));
  return { name, place, ticks };
}

export function ParallelCoordinates({ search, trials, axes, brushes, hovered, selected }) {
  const [focused, setFocused] = useState("");
  const element = useRef();
  const box = useRef();
  const width = Math.max(useWidth(box), axes.length * LEAST_GAP);
  const side = Math.min(90, width / (2 * axes.length));
  const gap = axes.length > 1 ? (width - 2 * side) / (axes.length - 1) : 0;
  const across = (index) => (axes.length > 1 ? side + index * gap : width / 2);
  const down = (place) => TOP + (1 - place) * INNER;
  const objective = axes.at(-1)?.objective ? axes.at(-1) : null;
  const lines = drawn(trials, objective, selected.value);
  const point = (event) => {
    const number = Number(event.target.dataset?.trial ?? 0);
    if (number || event.type === "mouseleave") hovered.value = number;
  };
  const found = hovered.value && trials.find((trial) => trial.number === hovered.value);
  const aside = found ? trialText(found, search) : "drag along an axis to keep a range";
  const path = (trial) => {
    const points = axes.map((axis, index) => [across(index), axis.place(trial)]).filter(([, place]) => place !== null);
    return `M${points.map(([x, place]) => `${x.toFixed(1)} ${down(place).toFixed(1)}`).join("L")}`;
  };
  const toggle = (trial) => {
    const next = new Set(selected.value);
    if (!next.delete(trial.id)) next.add(trial.id);
    selected.value = next;
  };
  const chosen = trials.filter((trial) => selected.value.has(trial.id)).slice(0, COLOURS.length);
  const line = (trial, kind, colour) => {
    const good = objective && trial.value !== null ? (objective.goal === "max" ? objective.place(trial) : 1 - objective.place(trial)) : null;
    const stroke = colour ? `var(${colour})` : good === null ? undefined : `color-mix(in oklab, var(--accent) ${Math.round(100 * good)}%, var(--faint))`;
    return html`<path key=${trial.id} class=${kind} d=${path(trial)} style=${{ stroke, opacity: kind ? undefined : 0.25 + 0.65 * (good ?? 0) ** 2 }} data-trial=${trial.number} onClick=${() => toggle(trial)} />`;
  };
  return html`
    <${Section} title="Parallel coordinates" aside=${html`<span class="readout">${aside}</span>`}>
      <div class="panel parallel" ref=${box}>
        <svg ref=${element} width=${width} height=${HEIGHT} role="group" aria-label="parallel coordinates of the trials" onMouseOver=${point} onMouseLeave=${point}>
          <g class="strands">
            ${lines.map((trial) => line(trial, passes(trial, axes, brushes.value) ? "" : "out"))}
            ${chosen.map((trial) => line(trial, "chosen", COLOURS[chosen.indexOf(trial)]))}
            ${found && line(found, "hovered")}
          </g>
          ${axes.map((axis, index) => html`<${Axis} key=${axis.name} ...${{ axis, x: across(index), down, brushes, element, focused, setFocused, gap }} last=${index === axes.length - 1} />`)}
        </svg>
      </div>
      ${trials.length > LINES && html`<p class="quiet small">The best ${LINES} of ${trials.length} trials are drawn.</p>`}
    <//>
  `;
}

/** The inner width of an element, as it changes. */
function useWidth(element) {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const measure = () => setWidth(element.current.clientWidth);
    measure();
    const sized = new ResizeObserver(measure);
    sized.observe(element.current);
    return () => sized.disconnect();
  }, []);
  return width;
}

/** The lines in the order in which they are drawn: the best last, on top. */
function drawn(trials, objective, selected) {
  const rank = (trial) => (trial.value === null ? -Infinity : objective?.goal === "min" ? -trial.value : trial.value);
  const sorted = [...trials].sort((one, other) => rank(one) - rank(other) || 0);
  return sorted.length > LINES ? sorted.filter((trial, at) => at >= sorted.length - LINES || selected.has(trial.id)) : sorted;
}

function Axis({ axis, x, down, brushes, element, focused, setFocused, gap, last }) {
  const range = brushes.value[axis.name];
  const set = (next) => {
    const { [axis.name]: _, ...rest } = brushes.value;
    brushes.value = next ? { ...rest, [axis.name]: next } : rest;
  };
  const placeOf = (event) => {
    const box = element.current.getBoundingClientRect();
    const y = ((event.clientY - box.top) / box.height) * HEIGHT;
    return Math.min(1, Math.max(0, 1 - (y - TOP) / INNER));
  };
  const drag = (event) => {
    if (event.button) return;
    event.preventDefault();
    const target = event.currentTarget;
    target.focus({ preventScroll: true });
    target.setPointerCapture(event.pointerId);
    const begin = placeOf(event);
    const move = (moved) => {
      const end = placeOf(moved);
      set(Math.abs(end - begin) * INNER < LEAST_BRUSH ? null : [Math.min(begin, end), Math.max(begin, end)]);
    };
    const up = (moved) => {
      move(moved);
      target.removeEventListener("pointermove", move);
    };
    target.addEventListener("pointermove", move);
    target.addEventListener("pointerup", up, { once: true });
    target.addEventListener("lostpointercapture", () => target.removeEventListener("pointermove", move), { once: true });
  };
  const key = (event) => {
    const [low, high] = range ?? [0, 1];
    const step = { ArrowUp: KEY_STEP, ArrowDown: -KEY_STEP }[event.key];
    if (event.key === "Delete" || event.key === "Backspace") set(null);
    else if (!step) return;
    else if (event.shiftKey) set([low, Math.min(1, Math.max(low, high + step))]);
    else set([Math.min(high, Math.max(0, low + step)), high]);
    event.preventDefault();
    event.stopPropagation();
  };
  const anchor = last ? "end" : "start";
  const side = last ? -8 : 8;
  const room = Math.max(8, Math.floor(gap / 7.4));
  return html`
    <g class="axis ${axis.objective ? "objective" : ""}">
      <text class="name" x=${x} y="14" text-anchor="middle">${short(axis.name, room)}<title>${axis.name}</title></text>
      <line x1=${x} x2=${x} y1=${TOP} y2=${HEIGHT - BOTTOM} />
      ${axis.ticks.map(({ text, at }) => html`<text class="tick" x=${x + side} y=${down(at) + (at > 0.99 ? -5 : at < 0.01 ? 13 : 4)} text-anchor=${anchor}>${short(text, room - 2)}<title>${text}</title></text>`)}
      ${range && html`<rect class="range" x=${x - 7} width="14" y=${down(range[1])} height=${Math.max(2, (range[1] - range[0]) * INNER)} />`}
      <rect
        class="grip"
        x=${x - 14}
        width="28"
        y=${TOP}
        height=${INNER}
        tabindex="0"
        role="slider"
        aria-label="range of ${axis.name}: arrows move the low end, with shift the high end, delete removes it"
        aria-valuemin="0"
        aria-valuemax="100"
        aria-valuenow=${Math.round(100 * (range?.[0] ?? 0))}
        aria-valuetext=${range ? `from ${Math.round(100 * range[0])} to ${Math.round(100 * range[1])} %` : "everything"}
        onPointerDown=${drag}
        onKeyDown=${key}
        onFocus=${() => setFocused(axis.name)}
        onBlur=${() => setFocused("")}
      />
      ${focused === axis.name && html`<rect class="focus" x=${x - 10} width="20" y=${TOP - 3} height=${INNER + 6} rx="3" />`}
    </g>
  `;
}

const short = (text, most) => (text.length > most ? `${text.slice(0, Math.max(1, most - 1))}…` : text);
