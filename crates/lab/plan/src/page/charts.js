const PARTS = ["processors", "near memory", "far memory", "data", "journal"];

function stackChart() {
  const place = byId("stack-chart");
  const shown = mixes.map((mix, number) => ({ mix, number })).filter((one) => one.mix.stations.length > 0);
  if (shown.length === 0) { place.replaceChildren(make("p", { class: "small" }, "The plan has no times by part.")); return; }
  const names = [...new Set(shown.flatMap((one) => one.mix.stations.map((station) => station.name)))]
    .sort((one, two) => (PARTS.indexOf(one) + 99) % 99 - (PARTS.indexOf(two) + 99) % 99);
  const total = (mix) => mix.stations.reduce((sum, station) => sum + station.busy_s + station.delay_s, 0);
  const most = Math.max(...shown.map((one) => total(one.mix))) || 1;
  const step = 40;
  const chart = canvas(place, 30 + step * shown.length + 34, "Time of an operation by part, a bar for each mix", [16, 84, 38, 34]);
  const unit = [["ns", 1e9], ["us", 1e6], ["ms", 1e3], ["s", 1]].find(([, factor]) => most * factor < 1500) || ["s", 1];
  const x = linear(0, most * unit[1], chart.left, chart.right);
  axes(chart, x, null, (tick) => count(tick) + " " + unit[0], null);
  const hatch = draw("defs", {});
  names.forEach((name, number) => hatch.append(draw("pattern", { id: `hatch${number}`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    draw("rect", { width: 6, height: 6, fill: "var(--ground)" }), draw("rect", { width: 2.5, height: 6, fill: color(number) }))));
  chart.svg.append(hatch);
  shown.forEach((one, row) => {
    const y = chart.top + row * step + 8;
    let sum = 0;
    const bar = (value, fill, text) => {
      if (!(value > 0)) return;
      const [from, to] = [x.at(sum * unit[1]), x.at((sum + value) * unit[1])];
      const rect = draw("rect", { x: from, y, width: Math.max(0.75, to - from), height: 20, fill });
      rect.addEventListener("pointerenter", () => tip(place, text, from, y + 8));
      rect.addEventListener("pointerleave", () => tip(place, null));
      chart.svg.append(rect);
      sum += value;
    };
    for (const station of one.mix.stations) {
      const number = names.indexOf(station.name);
      const used = `${station.name}: ${percent(station.used)} in use`;
      bar(station.busy_s, color(number), `${used}\nits own work ${seconds(station.busy_s)}`);
      bar(station.delay_s, `url(#hatch${number})`, `${used}\nbeside it ${seconds(station.delay_s)}`);
    }
    chart.svg.append(draw("text", { class: one.number === selected ? "strong" : null, x: chart.left - 10, y: y + 14, "text-anchor": "end" }, String(one.number + 1)),
      draw("text", { class: one.number === selected ? "strong" : null, x: x.at(sum * unit[1]) + 6, y: y + 14 }, seconds(sum)));
  });
  legend("stack-legend", names.map((name, number) => [color(number), "box", name]));
}

function curveChart() {
  const place = byId("curve-chart");
  const workloads = [...new Set(plan.curves.map((curve) => curve.workload))];
  if (!workloads.includes(curveChart.workload)) curveChart.workload = workloads[0];
  const curves = plan.curves.filter((curve) => curve.workload === curveChart.workload && curve.points.length > 1);
  const lead = byId("curve-lead");
  if (curves.length === 0) { lead.textContent = "There is no curve: the plan was made from a sizing, without a profile."; place.replaceChildren(); return; }
  lead.textContent = "The part of accesses that a cache does not find. The dashed lines are the mixes: near memory, and near and far memory together.";
  const points = curves.flatMap((curve) => curve.points).filter(([size]) => size > 0);
  const mix = mixes[selected];
  const sizes = mix ? [mix.near_bytes, mix.near_bytes + (mix.far_bytes || 0)].filter((size) => size > 0) : [];
  const low = points.reduce((least, [size]) => Math.min(least, size), Infinity);
  const high = points.reduce((most, [size]) => Math.max(most, size), 0);
  const chart = canvas(place, 340, "Miss ratio by size of memory", [34, 20, 46, 52]);
  const x = logarithmic(low, Math.max(high, low * 2, ...sizes), chart.left, chart.right, 2);
  const most = Math.max(0.01, ...points.map(([, ratio]) => ratio));
  const y = linear(0, most, chart.bottom, chart.top);
  axes(chart, x, y, bytes, percent, "memory", "not found");
  const marks = new Map();
  mixes.forEach((one, number) => {
    for (const [size, what] of [[one.near_bytes, "near"], [one.near_bytes + (one.far_bytes || 0), "near + far"]]) {
      if (!(size > 0) || (what !== "near" && !one.far_bytes)) continue;
      const key = `${what} ${size}`;
      marks.set(key, { size, numbers: [...(marks.get(key)?.numbers || []), number] });
    }
  });
  let row = 0;
  for (const { size, numbers } of [...marks.values()].sort((one, two) => one.size - two.size)) {
    const isSelected = numbers.includes(selected);
    const at = x.at(size);
    chart.svg.append(draw("line", { x1: at, x2: at, y1: chart.top, y2: chart.bottom, stroke: isSelected ? "var(--accent)" : "var(--mark)", "stroke-width": isSelected ? 2 : 1, "stroke-dasharray": "4 3" }),
      draw("text", { class: isSelected ? "strong" : null, x: at + 4, y: chart.top + 10 + (row % 3) * 14 }, numbers.map((number) => number + 1).join(", ")));
    row += 1;
  }
  const name = (curve) => (curve.structure === "all" ? "" : curve.structure + ", ") + ({ lru: "LRU", clock: "as the node does it", clock_far: "as the node does it, with far memory", direct: "Memory Mode" }[curve.policy] || curve.policy)
    + (curve.far_bytes ? `, ${bytes(curve.far_bytes)} far` : "");
  curves.forEach((curve, number) => {
    const path = curve.points.filter(([size]) => size > 0).map(([size, ratio], place) => `${place === 0 ? "M" : "L"}${x.at(size).toFixed(1)} ${y.at(ratio).toFixed(1)}`).join("");
    chart.svg.append(draw("path", { d: path, fill: "none", stroke: color(number), "stroke-width": 2, "stroke-dasharray": curve.policy === "lru" ? null : "6 3" }));
  });
  const cross = draw("line", { y1: chart.top, y2: chart.bottom, stroke: "var(--soft)", visibility: "hidden" });
  const catcher = draw("rect", { x: chart.left, y: chart.top, width: chart.right - chart.left, height: chart.bottom - chart.top, fill: "transparent" });
  catcher.addEventListener("pointermove", (event) => {
    const box = chart.svg.getBoundingClientRect();
    const at = Math.min(chart.right, Math.max(chart.left, (event.clientX - box.left) * (chart.width / box.width)));
    const part = (at - chart.left) / (chart.right - chart.left);
    const top = Math.max(high, low * 2, ...sizes);
    const size = low * (top / low) ** part;
    const lines = curves.slice(0, 8).map((curve) => `${name(curve)}: ${percent(ratioAt(curve.points, size))}`);
    cross.setAttribute("x1", at); cross.setAttribute("x2", at); cross.setAttribute("visibility", "visible");
    tip(place, [bytes(Math.round(size)), ...lines].join("\n"), at, chart.top + 30);
  });
  catcher.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); tip(place, null); });
  chart.svg.append(cross, catcher);
  legend("curve-legend", [...curves.map((curve, number) => [color(number), curve.policy === "lru" ? "line" : "dash", name(curve)]), ["var(--mark)", "dash", "the mixes, by number"]]);
  const select = byId("curve-workload");
  if (workloads.length > 1 && !select.firstChild) {
    const box = make("select", {}, ...workloads.map((text) => make("option", {}, text)));
    box.addEventListener("change", () => { curveChart.workload = box.value; curveChart(); });
    select.append(make("label", {}, "Workload ", box));
  }
}

// The ratio of the largest point that is not above the size.
function ratioAt(points, size) {
  let ratio = 1;
  for (const [bytes, miss] of points) { if (bytes > size) break; ratio = miss; }
  return ratio;
}

function heatChart() {
  const place = byId("heat-chart");
  const heat = (plan.workloads.find((workload) => workload.heat.length > 1 && workload.kind !== "sizing") || { heat: [] }).heat;
  if (heat.length === 0) { byId("heat-lead").textContent = "There is none: the record has a single interval or no times, or the plan was made from a sizing."; place.replaceChildren(); return; }
  const rate = (one) => (one.reads + one.writes) / Math.max(1, one.seconds);
  const most = Math.max(...heat.map(rate)) || 1;
  const busiest = heat.reduce((best, one) => (rate(one) > rate(best) ? one : best));
  const each = heat[0].seconds;
  byId("heat-lead").textContent = `Accesses each second, by intervals of ${each >= 3600 ? count(each / 3600) + " h" : count(each / 60) + " min"} since the record began. The busiest has ${count(rate(busiest))}/s, and the plan is for it.`;
  const columns = Math.max(1, Math.min(24, Math.round(86400 / each), heat.length));
  const rows = Math.ceil(heat.length / columns);
  const height = Math.max(26, Math.min(60, 220 / rows));
  const chart = canvas(place, 20 + rows * height + 34, `Load of ${heat.length} intervals; the busiest has ${count(rate(busiest))} accesses a second`, [6, 4, 34, 52]);
  const wide = (chart.right - chart.left) / columns;
  heat.forEach((one, number) => {
    const [x, y] = [chart.left + (number % columns) * wide, chart.top + Math.floor(number / columns) * height];
    const strength = rate(one) / most;
    const cell = draw("rect", { x: x + 0.75, y: y + 0.75, width: Math.max(1, wide - 1.5), height: height - 1.5, rx: 2, fill: "rgb(var(--heat-low))" });
    const over = draw("rect", { x: x + 0.75, y: y + 0.75, width: Math.max(1, wide - 1.5), height: height - 1.5, rx: 2, fill: "rgb(var(--heat-high))", "fill-opacity": Math.sqrt(strength).toFixed(3), stroke: one === busiest ? "var(--bad)" : null, "stroke-width": 2 });
    over.addEventListener("pointerenter", () => tip(place, `${count(one.begin_s / 3600)} h: ${count(rate(one))}/s\n${count(one.reads)} reads, ${count(one.writes)} writes`, x, y));
    over.addEventListener("pointerleave", () => tip(place, null));
    chart.svg.append(cell, over);
  });
  for (let row = 0; row < rows; row += 1) chart.svg.append(draw("text", { x: chart.left - 8, y: chart.top + row * height + height / 2 + 4, "text-anchor": "end" }, count((row * columns * each) / 3600) + " h"));
  for (let column = 0; column < columns; column += Math.max(1, Math.ceil(columns / 8))) chart.svg.append(draw("text", { x: chart.left + column * wide, y: chart.top + rows * height + 18 }, `+${count((column * each) / 3600)} h`));
}

function wasteChart() {
  const place = byId("waste-chart");
  const mix = mixes[selected];
  const wasted = mix ? mix.wasted.filter((one) => one.bought > 0) : [];
  byId("waste-lead").textContent = wasted.length > 0 ? `Of mix ${selected + 1}, at the rate of the target. The best match is full everywhere; what is light was bought and is not used.` : "The plan says nothing about it for this mix.";
  if (wasted.length === 0) { place.replaceChildren(); return; }
  const step = 46;
  const chart = canvas(place, step * wasted.length + 10, "Used parts of what is bought", [4, 4, 4, 0]);
  wasted.forEach((one, row) => {
    const y = row * step + 4;
    const part = Math.min(1, one.used / one.bought);
    const wide = chart.right - chart.left;
    const isOver = one.used > one.bought * 1.0001;
    chart.svg.append(draw("text", { class: "strong", x: chart.left, y: y + 12 }, `${one.medium}, ${one.unit}`),
      draw("text", { x: chart.right, y: y + 12, "text-anchor": "end" }, `${count(one.used)} of ${count(one.bought)}: ${percent(one.used / one.bought)}`),
      draw("rect", { x: chart.left, y: y + 19, width: wide, height: 14, rx: 2, fill: "var(--grid)", stroke: "var(--mark)" }),
      draw("rect", { x: chart.left, y: y + 19, width: Math.max(1, wide * part), height: 14, rx: 2, fill: isOver ? "var(--bad)" : "var(--c0)" }));
  });
}

// Everything that is text.
function texts() {
  const { server, target, workloads } = plan;
  const says = plan.says ? plan.says[0].toUpperCase() + plan.says.slice(1) : "Plan of media";
  byId("says").textContent = says;
  byId("when").textContent = plan.version;
  document.title = says.slice(0, 90);
  const sum = (key) => workloads.reduce((all, one) => all + (one[key] || 0), 0);
  const facts = [["Touched", bytes(sum("touched_bytes"))], ["Find 95 % of what any can", workloads.every((one) => known(one.hot_bytes)) && workloads.length > 0 ? bytes(sum("hot_bytes")) : null],
    ["Busiest minute", workloads.length > 0 ? count(sum("worst_accesses_per_s")) + " accesses/s" : null], ["Commits", workloads.some((one) => known(one.commits_per_s)) ? count(sum("commits_per_s")) + "/s" : null],
    ["Written", workloads.length > 0 ? bytes(sum("written_bytes_per_s")) + "/s" : null],
    ["Target", TIMES.filter(([key]) => known(target[key])).map(([key, name]) => `${name} ${seconds(target[key])}`).join("; ") || (known(target.rate) ? "" : "none")],
    ["Rate", known(target.rate) ? count(target.rate) + "/s" : null], ["Growth planned for", target.growth !== 1 ? `x ${count(target.growth)}` : null], ["Budget", known(target.budget_usd) ? money(target.budget_usd) : null],
    ["Server", `${server.name || "server"}: ${server.sockets} sockets, ${server.cores} cores`]];
  byId("facts").replaceChildren(...facts.filter(([, text]) => text).map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text))));
  const remarks = [];
  if (plan.refused.length > 0) remarks.push(make("div", { class: "note bad" }, make("strong", {}, "Not planned"), list(plan.refused)));
  if (plan.no_help.length > 0) remarks.push(make("div", { class: "note" }, make("strong", {}, "Does not help"), list(plan.no_help)));
  byId("remarks").replaceChildren(...remarks);
  byId("cost-lead").textContent = `Down and to the left is better. ${known(targetTime) ? "" : "There is no target in time. "}A mark is a mix; its number is that of the list below.`;
  const { considered } = plan;
  const left = considered.left_out.map(([why, many]) => `${many} ${why}`);
  const rows = plan.prices.map((price) => [price.medium, perGb(price.usd.expected), price.usd.low < price.usd.high ? `${perGb(price.usd.low)} to ${perGb(price.usd.high)}` : "", price.unit, price.dated, price.source]);
  byId("prices").replaceChildren(
    rows.length > 0 ? scrolled("prices", table([["medium"], ["price", "number"], ["low to high", "number"], ["unit"], ["dated"], ["source"]], rows)) : make("p", {}, "There were no prices."),
    make("p", {}, `Times are those of the catalogue's models, at the concurrency that results. ${considered.predicted} of ${considered.mixes} mixes were predicted${left.length > 0 ? "; left out:" : "."}`), left.length > 0 ? list(left) : "");
  const hasTarget = ["p99_commit_s", "p99_read_s", "p95_query_s", "rate", "budget_usd"].some((key) => known(plan.target[key]));
  const flips = plan.flips.map((flip) => `${flip.medium} at ${flip.unit ? perGb(flip.usd) + flip.unit.slice(3) : perGb(flip.usd_per_gb) + "/GB"} (${flip.factor.toFixed(2)} times its price): ${flip.to_name || "another mix"}`);
  const even = plan.break_even.map((one) => `${one.medium} has no price; it would be worth it up to ${perGb(one.usd_per_gb)}/GB, as ${one.mix}`);
  byId("flips").replaceChildren(flips.length + even.length > 0 ? list([...flips, ...even]) : make("p", { class: "lead" }, hasTarget ? "The plan has found no price that changes it." : "Without a target no price was searched."));
  byId("sure").replaceChildren(plan.sure.length > 0 ? scrolled("how sure the figures are", table([["figure"], ["error"], ["because"]], plan.sure.map((one) => [one.what, one.error, one.because])))
    : make("p", { class: "lead" }, "The plan says nothing about errors."));
  const figure = (one) => `${one.metric} ${known(one.low) ? `${count(one.low)} to ${count(one.high)}` : (one.bound ? one.bound + " " : "") + count(one.figure)} ${one.unit}${one.against ? ", against " + one.against : ""}`;
  const when = (one) => one.dated + (one.date_of === "publication" ? "" : one.date_of === "citation" ? " (cited)" : " (read)");
  const groups = new Map();
  for (const one of evidence) {
    const key = [one.system, one.mix, one.source, one.at].join("\n");
    groups.set(key, { one, figures: [...(groups.get(key)?.figures || []), figure(one)] });
  }
  byId("evidence").replaceChildren(groups.size > 0
    ? scrolled("what others have measured", table([["system and workload"], ["mix"], ["figures"], ["source"]],
      [...groups.values()].map(({ one, figures }) => [`${one.system}: ${one.what}`, one.mix, figures.join("; "), `${one.source}; ${one.at}; ${when(one)}`])))
    : make("p", { class: "lead" }, "No record of `terrace plan evidence` has the same kinds of media in the same mode at such a ratio."));
  byId("foot").textContent = "All of this page is in this file. It asks nothing of a network. The figures are in it as JSON (the element with the id data).";
}

function all() { costChart(); mixTable(); detail(); stackChart(); curveChart(); heatChart(); wasteChart(); }
texts();
sliders();
all();
let width = window.innerWidth;
window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; all(); } });
