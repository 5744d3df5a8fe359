"use strict";
// Elements, scales and axes. Texts of the plan only ever become text nodes.
const NS = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

function make(name, attributes, ...inner) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) if (value !== null && value !== undefined) node.setAttribute(key, value);
  node.append(...inner.filter((one) => one !== null && one !== undefined));
  return node;
}

function draw(name, attributes, ...inner) {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes || {})) if (value !== null && value !== undefined) node.setAttribute(key, value);
  node.append(...inner.filter((one) => one !== null && one !== undefined));
  return node;
}

const known = (value) => typeof value === "number" && Number.isFinite(value);
const three = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));

function seconds(value) {
  if (!known(value)) return "not known";
  if (value === 0) return "0";
  const [unit, factor] = value < 1e-6 ? ["ns", 1e9] : value < 1e-3 ? ["us", 1e6] : value < 1 ? ["ms", 1e3] : ["s", 1];
  return three(value * factor) + " " + unit;
}

function bytes(value) {
  if (!known(value)) return "not known";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return (Number.isInteger(value) || value >= 100 ? value.toFixed(0) : three(value)) + " " + units[unit];
}

const whole = (value) => Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
const count = (value) => (!known(value) ? "not known" : value >= 100 ? whole(value) : String(Number(value.toPrecision(3))));
const money = (value) => (!known(value) ? "no price" : value === 0 ? "$0" : value >= 100 ? "$" + whole(value) : "$" + value.toFixed(2));
const percent = (value) => (known(value) ? (value * 100).toFixed(value > 0 && value < 0.1 ? 1 : 0) + "\u00a0%" : "not known");
const perGb = (value) => (value < 0.1 ? "$" + value.toFixed(4) : "$" + value.toFixed(2));

// Scales map a value to a place; they have ticks.
function linear(low, high, from, to) {
  const span = high - low || 1;
  const at = (value) => from + ((value - low) / span) * (to - from);
  const rough = span / Math.max(2, Math.min(6, Math.floor(Math.abs(to - from) / 70)));
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough) || rough;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) ticks.push(tick);
  return { at, ticks };
}

function logarithmic(low, high, from, to, base) {
  const log = (value) => Math.log(value) / Math.log(base);
  const [first, last] = [log(low), log(high)];
  const span = last - first || 1;
  const at = (value) => from + ((log(Math.max(value, low)) - first) / span) * (to - from);
  const room = Math.max(2, Math.floor(Math.abs(to - from) / 55));
  const every = Math.max(1, Math.ceil((Math.floor(last) - Math.ceil(first) + 1) / room));
  const ticks = [];
  for (let power = Math.ceil(first - 1e-9); power <= last + 1e-9; power += every) ticks.push(base ** power);
  if (base === 10 && ticks.length < 2) for (const part of [2, 5]) for (let power = Math.floor(first); power <= last; power += 1) {
    const tick = part * 10 ** power;
    if (tick >= low && tick <= high) ticks.push(tick);
  }
  return { at, ticks };
}

// A logarithmic scale that has 0 at its left end.
function fromZero(low, high, from, to) {
  const scale = logarithmic(low / 2, high, from + (to - from) * 0.06, to, 10);
  return { at: (value) => (value < low / 2 ? from : scale.at(value)), ticks: [0, ...scale.ticks] };
}

// An empty chart as wide as its place.
function canvas(place, height, label, margin, isGroup) {
  const width = Math.max(280, Math.round(place.clientWidth || 900));
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: isGroup ? "group" : "img", "aria-label": label });
  place.replaceChildren(svg);
  return { svg, width, height, left: margin[3], right: width - margin[1], top: margin[0], bottom: height - margin[2] };
}

function axes(chart, x, y, xText, yText, xLabel, yLabel) {
  const { svg, left, right, top, bottom } = chart;
  for (const tick of y ? y.ticks : []) {
    svg.append(draw("line", { class: "grid", x1: left, x2: right, y1: y.at(tick), y2: y.at(tick) }),
      draw("text", { x: left - 8, y: y.at(tick) + 4, "text-anchor": "end" }, yText(tick)));
  }
  for (const tick of x ? x.ticks : []) {
    svg.append(draw("line", { class: "axis", x1: x.at(tick), x2: x.at(tick), y1: bottom, y2: bottom + 5 }),
      draw("text", { x: x.at(tick), y: bottom + 19, "text-anchor": "middle" }, xText(tick)));
  }
  svg.append(draw("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
  if (xLabel) svg.append(draw("text", { x: right, y: bottom + 36, "text-anchor": "end" }, xLabel));
  if (yLabel) svg.append(draw("text", { x: 0, y: top - 14 }, yLabel));
}

// A text beside what the pointer is on.
function tip(place, text, x, y) {
  let node = place.querySelector(".tip");
  if (text === null) { if (node) node.remove(); return; }
  if (!node) { node = make("div", { class: "tip", "aria-hidden": "true" }); place.append(node); }
  node.textContent = text;
  const scale = place.clientWidth / (place.querySelector("svg").viewBox.baseVal.width || 1);
  const left = Math.min(Math.max(0, x * scale + 12), Math.max(0, place.clientWidth - node.offsetWidth));
  node.style.left = left + "px";
  node.style.top = y * scale + 14 + "px";
}

function swatch(color, kind) {
  const mark = kind === "line" ? draw("line", { x1: 0, x2: 16, y1: 6, y2: 6, stroke: color, "stroke-width": 2.5 })
    : kind === "ring" ? draw("circle", { cx: 8, cy: 6, r: 4.5, fill: "none", stroke: color, "stroke-width": 1.5 })
    : kind === "diamond" ? draw("path", { d: "M8 0L14 6L8 12L2 6Z", fill: color })
    : kind === "dash" ? draw("line", { x1: 0, x2: 16, y1: 6, y2: 6, stroke: color, "stroke-width": 1.5, "stroke-dasharray": "4 3" })
    : draw("rect", { x: 2, y: 0, width: 12, height: 12, fill: color });
  return draw("svg", { viewBox: "0 0 16 12", "aria-hidden": "true" }, mark);
}

const legend = (id, entries) => byId(id).replaceChildren(...entries.map(([color, kind, text]) => make("span", {}, swatch(color, kind), text)));
const color = (number) => `var(--c${number % 8})`;

function table(heads, rows) {
  const cell = (name, [text, kind]) => make(name, { class: kind === "number" ? "number" : null, scope: name === "th" ? "col" : null }, text);
  return make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((head) => cell("th", head)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text, place) => cell("td", [text, heads[place][1]]))))));
}
const scrolled = (label, inner) => make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": label }, inner);
const list = (items) => make("ul", { class: "plain" }, ...items.map((text) => make("li", {}, text)));
