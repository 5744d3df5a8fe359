const { plan, evidence } = JSON.parse(byId("data").textContent);
const mixes = plan.mixes;
const TIMES = [["p99_commit_s", "99 of 100 commits within"], ["p95_query_s", "95 of 100 queries within"],
  ["p99_read_s", "99 of 100 accesses within"], ["mean_read_s", "mean time of an access"]];
const [timeKey, timeName] = TIMES.find(([key]) => mixes.some((mix) => known(mix[key]))) || TIMES[3];
const targetTime = plan.target[timeKey];
let selected = known(plan.chosen) ? plan.chosen : 0;

// Prices: a factor for each medium that has one, a price of a GB for each that has none.
const priced = new Map();
const unpriced = new Map();
for (const part of mixes.flatMap((mix) => mix.parts)) {
  if (part.count === part.owned) continue;
  if (part.usd) priced.set(part.medium, 1); else unpriced.set(part.medium, 0);
}
for (const medium of priced.keys()) unpriced.delete(medium);

function cost(mix, end) {
  let sum = 0;
  for (const part of mix.parts) {
    if (part.count === part.owned) continue;
    if (part.usd) sum += part.usd[end] * priced.get(part.medium);
    else if (unpriced.get(part.medium) > 0) sum += unpriced.get(part.medium) * part.gb * (1 - part.owned / (part.count || 1));
    else return null;
  }
  return sum;
}

// The mixes that no other one beats in cost, time and what is left, by cost; and the cheapest within the target.
function choice() {
  const all = mixes.map((mix, number) => ({ number, mix, usd: cost(mix, "expected"), time: mix[timeKey] })).filter((one) => known(one.usd) && known(one.time));
  const beats = (one, two) => one.usd <= two.usd && one.time <= two.time && one.mix.spare >= two.mix.spare
    && (one.usd < two.usd || one.time < two.time || one.mix.spare > two.mix.spare);
  const front = all.filter((two) => !all.some((one) => beats(one, two))).sort((one, two) => one.usd - two.usd);
  const budget = known(plan.target.budget_usd) ? plan.target.budget_usd : Infinity;
  const within = all.filter((one) => one.mix.meets_target && one.usd <= budget).sort((one, two) => one.usd - two.usd);
  const isPlanned = !isMoved() || plan.answer === "no_target";
  return { all, front, best: isPlanned ? all.find((one) => one.number === plan.chosen) : within[0] };
}

const isMoved = () => [...priced.values()].some((factor) => factor !== 1) || [...unpriced.values()].some((usd) => usd > 0);

function costChart() {
  const place = byId("cost-chart");
  const { all, front, best } = choice();
  if (all.length === 0) { place.replaceChildren(make("p", { class: "note" }, "No mix has both a price and a time: give prices with --prices.")); return; }
  const chart = canvas(place, 380, "Marks of mixes: cost to the right, time upwards", [34, 20, 46, 64], true);
  const ends = all.flatMap((one) => [one.usd, cost(one.mix, "low"), cost(one.mix, "high")]).filter(known);
  const times = all.map((one) => one.time).concat(known(targetTime) ? [targetTime] : []);
  // The ends stay when a slider moves, so that the marks do.
  const high = Math.max(...ends, (costChart.high = costChart.high || Math.max(...ends) * 1.35));
  const least = Math.min(...ends.filter((usd) => usd > 0));
  const x = high > least * 30 ? fromZero(least / 2, high * 1.2, chart.left, chart.right) : linear(0, high * 1.04, chart.left, chart.right);
  const y = logarithmic(Math.min(...times) / 1.6, Math.max(...times) * 1.6, chart.bottom, chart.top, 10);
  axes(chart, x, y, (tick) => money(tick), seconds, "cost beyond what is owned", timeName);
  if (known(targetTime)) {
    chart.svg.append(draw("line", { class: "target", x1: chart.left, x2: chart.right, y1: y.at(targetTime), y2: y.at(targetTime) }),
      draw("text", { class: "target", x: chart.right, y: y.at(targetTime) - 6, "text-anchor": "end" }, "target " + seconds(targetTime)));
  }
  if (front.length > 1) {
    let path = "";
    front.forEach((one, place) => { path += place === 0 ? `M${x.at(one.usd)} ${y.at(one.time)}` : `H${x.at(one.usd)}V${y.at(one.time)}`; });
    chart.svg.append(draw("path", { class: "front", d: path }));
  }
  const onFront = new Set(front.map((one) => one.number));
  // Marks on each other have one text together, above the first.
  const groups = [];
  for (const one of all) {
    const place = { x: x.at(one.usd), y: y.at(one.time), numbers: [one.number] };
    const near = groups.find((group) => Math.hypot(group.x - place.x, group.y - place.y) < 14);
    if (near) { near.numbers.push(one.number); near.y = Math.min(near.y, place.y); } else groups.push(place);
  }
  for (const one of all) {
    const [cx, cy] = [x.at(one.usd), y.at(one.time)];
    const isBest = best && best.number === one.number;
    const label = `${one.number + 1}: ${one.mix.name}, ${money(one.usd)}, ${seconds(one.time)}${isBest ? ", the choice" : ""}`;
    const mark = draw("g", { role: "button", tabindex: 0, "aria-label": label, "aria-pressed": one.number === selected, "data-mix": one.number });
    const [low, highEnd] = [cost(one.mix, "low"), cost(one.mix, "high")];
    if (known(low) && highEnd > low) mark.append(draw("line", { x1: x.at(low), x2: x.at(highEnd), y1: cy, y2: cy, stroke: "var(--mark)", "stroke-width": 1.25 }));
    const fill = isBest ? "var(--accent)" : onFront.has(one.number) ? "var(--ink)" : "var(--ground)";
    mark.append(draw("circle", { class: "halo", cx, cy, r: 14, stroke: one.number === selected ? "var(--accent)" : null, style: one.number === selected ? "stroke:var(--accent)" : null }));
    mark.append(isBest ? draw("path", { d: `M${cx} ${cy - 9}L${cx + 9} ${cy}L${cx} ${cy + 9}L${cx - 9} ${cy}Z`, fill })
      : draw("circle", { cx, cy, r: 5.5, fill, stroke: one.mix.meets_target ? "var(--ink)" : "var(--bad)", "stroke-width": 1.5 }));
    const pick = () => choose(one.number);
    mark.addEventListener("click", pick);
    mark.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(); byId("cost-chart").querySelector(`[data-mix="${one.number}"]`).focus(); } });
    mark.addEventListener("pointerenter", () => tip(place, `${one.number + 1}: ${one.mix.name}\n${money(one.usd)}, ${seconds(one.time)}\nbinds: ${one.mix.binds}`, cx, cy));
    mark.addEventListener("pointerleave", () => tip(place, null));
    chart.svg.append(mark);
  }
  for (const group of groups) {
    const text = group.numbers.sort((one, two) => one - two).map((number) => number + 1).join(", ");
    chart.svg.append(draw("text", { class: "strong", x: group.x, y: group.y - 17, "text-anchor": group.x < chart.left + 30 && group.numbers.length > 1 ? "start" : "middle", "pointer-events": "none" }, text));
  }
  legend("cost-legend", [["var(--accent)", "diamond", "the choice"], ["var(--ink)", "ring", "meets the target"], ["var(--bad)", "ring", "does not"],
    ["var(--accent)", "line", "no other is cheaper and faster"], ["var(--mark)", "line", "from low to high prices"]]);
  const none = plan.answer === "no_target" ? "there is no target, so none is chosen" : "no mix with a price meets the target";
  const told = best ? `${best.number + 1}: ${best.mix.name}, ${money(best.usd)}` : none;
  byId("verdict").textContent = (isMoved() ? "At these prices: " : "As planned: ") + told;
}

function sliders() {
  const form = byId("sliders");
  const controls = [];
  const control = (medium, attributes, start, show, set) => {
    const output = make("output", {}, show(start));
    const input = make("input", { type: "range", ...attributes, value: start, "data-medium": medium, "aria-label": `Price of ${medium}`, "aria-valuetext": show(start) });
    input.addEventListener("input", () => {
      const value = Number(input.value);
      set(value);
      output.textContent = show(value);
      input.setAttribute("aria-valuetext", show(value));
      costChart();
      mixTable();
    });
    controls.push([input, start]);
    form.append(make("label", {}, medium, output, input));
  };
  const priceOf = (medium) => plan.prices.find((price) => price.medium === medium && price.unit.startsWith("USD/GB"));
  for (const medium of priced.keys()) {
    const price = priceOf(medium);
    const show = (power) => {
      const factor = 2 ** power;
      return price ? `${perGb(price.usd.expected * factor)}${price.unit.slice(3)}` : `x ${factor.toFixed(2)}`;
    };
    control(medium, { min: -1, max: 1.585, step: 0.005 }, 0, show, (power) => priced.set(medium, 2 ** power));
  }
  for (const medium of unpriced.keys()) {
    control(medium, { min: 0, max: 40, step: 0.1 }, 0, (usd) => (usd > 0 ? perGb(usd) + "/GB" : "no price"), (usd) => unpriced.set(medium, usd));
  }
  if (controls.length === 0) { form.remove(); return; }
  const reset = make("button", { type: "button" }, "Prices as planned");
  reset.addEventListener("click", () => controls.forEach(([input, start]) => { input.value = start; input.dispatchEvent(new Event("input")); }));
  form.append(reset);
}

function mixTable() {
  const { front, best } = choice();
  const onFront = new Set(front.map((one) => one.number));
  // The others are in the detail: a list that is wider than the page hides what binds.
  const times = [[timeKey, timeName]];
  const hasRate = mixes.some((mix) => known(mix.rate_max));
  const heads = ["mix", "cost", "low to high", ...times.map(([, name]) => name), ...(hasRate ? ["most it can do"] : []), "binds", ""];
  const head = make("thead", {}, make("tr", {}, ...heads.map((text, place) => make("th", { scope: "col", class: place > 0 && place < heads.length - 2 ? "number" : null }, text || make("span", { class: "small" }, "remarks")))));
  const focused = document.activeElement && document.activeElement.name === "mix" ? document.activeElement.value : null;
  const rows = mixes.map((mix, number) => {
    const radio = make("input", { type: "radio", name: "mix", value: number });
    radio.checked = number === selected;
    radio.addEventListener("change", () => choose(number));
    const tags = [];
    if (best && best.number === number) tags.push(make("span", { class: "tag good" }, "the choice"));
    if (mix.is_today) tags.push(make("span", { class: "tag plain" }, "today"));
    if (plan.knee === number) tags.push(make("span", { class: "tag plain" }, "knee"));
    if (!mix.meets_target && plan.answer !== "no_target") tags.push(make("span", { class: "tag bad" }, "misses the target"));
    else if (onFront.has(number)) tags.push(make("span", { class: "tag plain" }, "none cheaper and faster"));
    const [low, high] = [cost(mix, "low"), cost(mix, "high")];
    return make("tr", { class: number === selected ? "selected" : null },
      make("th", { scope: "row" }, make("label", {}, radio, `${number + 1}: ${mix.name}`)),
      make("td", { class: "number" }, money(cost(mix, "expected"))),
      make("td", { class: "number" }, known(low) ? `${money(low)} to ${money(high)}` : ""),
      ...times.map(([key]) => make("td", { class: "number" }, known(mix[key]) || mix.spare > 0 ? seconds(mix[key]) : "too busy")),
      hasRate ? make("td", { class: "number" }, known(mix.rate_max) ? count(mix.rate_max) + "/s" : "not known") : null,
      make("td", {}, mix.binds), make("td", {}, ...tags.flatMap((tag) => [tag, " "])));
  });
  byId("mix-table").replaceChildren(head, make("tbody", {}, ...rows));
  if (focused !== null) { const radio = document.querySelector(`input[name=mix][value="${focused}"]`); if (radio) radio.focus(); }
}

function detail() {
  const mix = mixes[selected];
  if (!mix) return;
  const place = byId("mix-detail");
  const parts = mix.parts.map((part) => [`${part.count} x ${part.medium}`, part.uses.join(", "), count(part.gb), part.owned > 0 ? `${part.owned} owned` : "",
    part.count === part.owned ? "$0" : part.usd ? money(part.usd.expected) : "no price"]);
  const inner = [make("h3", {}, `Mix ${selected + 1}: ${mix.name}`),
    scrolled("parts of the mix", table([["part"], ["for"], ["GB", "number"], ["owned"], ["cost as planned", "number"]], parts))];
  if (mix.misses.length > 0) inner.push(make("div", { class: "note bad" }, list(mix.misses)));
  const others = TIMES.filter(([key]) => key !== timeKey && known(mix[key])).map(([key, name]) => `${name} ${seconds(mix[key])}`);
  if (others.length > 0) inner.push(make("p", { class: "small" }, `Also: ${others.join("; ")}.`));
  if (mix.served) inner.push(make("p", { class: "small" }, `Accesses served: near memory ${percent(mix.served.near)}, far memory ${percent(mix.served.far)}, a device ${percent(mix.served.device)}.`));
  if (mix.endurance) inner.push(make("p", { class: "small" }, `Written to the data drives each day: ${bytes(mix.endurance.written_bytes_per_day)}; allowed: ${bytes(mix.endurance.allowed_bytes_per_day)}.`));
  if (mix.settings) inner.push(make("details", { class: "source" }, make("summary", {}, "terrace.toml of a node on this mix"), make("pre", { tabindex: 0 }, mix.settings)));
  if (mix.commands.length > 0) inner.push(make("details", { class: "source" }, make("summary", {}, "Commands that provision it"), make("pre", { tabindex: 0 }, mix.commands.join("\n"))));
  place.replaceChildren(...inner);
}

function choose(number) {
  selected = number;
  costChart(); mixTable(); detail(); stackChart(); curveChart(); wasteChart();
}
