const boards = JSON.parse(document.getElementById("data").textContent);
const facts = JSON.parse(document.getElementById("provenance").textContent);
const COLOURS = ["#0b62c4", "#d9480f", "#2b8a3e", "#9c36b5", "#c99700", "#0b7285", "#c2255c", "#5f3dc4", "#66a80f", "#495057"];
const FIRST = ["cost", "configured", "session", "sglang-cli", "llm-d-all", "dynamo-1", "floor"];
const TUNED = { cost: "#1098ad", prefix: "#e64980" };
const COLUMNS = [
  ["hit", "hit", (row) => row.hit.toFixed(3)], ["ttft_mean", "TTFT mean s", (row) => row.ttft_mean.toFixed(2)],
  ["ttft_p50", "p50 s", (row) => row.ttft_p50.toFixed(2)], ["ttft_p99", "p99 s", (row) => row.ttft_p99.toFixed(1)],
  ["imbalance", "imbalance", (row) => row.imbalance.toFixed(2)], ["done", "done", (row) => row.done.toLocaleString("en")],
];
const BARS = new Set(["hit", "ttft_mean", "ttft_p99"]);
const at = (id) => document.getElementById(id);
const element = (name, text, className) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
};
let board = boards[0], drawn = new Map(), tuned = {};

function choose(next) {
  board = next; tuned = {};
  drawn = new Map();
  for (const name of FIRST) if (board.runs.some((run) => run.policy === name)) colour(name);
  if (!drawn.size) board.runs.slice(0, 4).forEach((run) => colour(run.policy));
  [...at("boards").children].forEach((button, place) => button.setAttribute("aria-pressed", String(boards[place] === board)));
  at("setting").textContent = `${board.backends} engines with ${board.capacity.toLocaleString("en")} cached blocks of 512 tokens each; ${board.setting}`;
  tuners(); draw();
}
function colour(name) {
  const used = new Set(drawn.values());
  drawn.set(name, COLOURS.find((one) => !used.has(one)) ?? COLOURS[0]);
}
function rows() {
  const table = at("rows"), head = element("thead"), body = element("tbody"), top = element("tr");
  top.append(element("th", "policy"), ...COLUMNS.map(([, title]) => element("th", title)));
  head.append(top);
  const most = Object.fromEntries([...BARS].map((key) => [key, Math.max(...board.runs.map((run) => run[key]))]));
  for (const run of [...board.runs].sort((a, b) => a.ttft_mean - b.ttft_mean)) {
    const line = element("tr"), name = element("td"), swatch = element("span", "", "swatch");
    if (drawn.has(run.policy)) swatch.style.background = drawn.get(run.policy);
    line.setAttribute("aria-selected", String(drawn.has(run.policy)));
    name.append(swatch, run.policy);
    line.append(name, ...COLUMNS.map(([key, , show]) => {
      const cell = element("td", show(run));
      if (BARS.has(key)) {
        const box = element("span", "", "barbox"), bar = element("span", "", "bar");
        bar.style.width = `${Math.max(2, 80 * run[key] / most[key])}px`;
        box.append(bar); cell.prepend(box);
      }
      return cell;
    }));
    line.addEventListener("click", () => { drawn.has(run.policy) ? drawn.delete(run.policy) : colour(run.policy); draw(); });
    body.append(line);
  }
  table.replaceChildren(head, body);
}
const shares = (ttft) => ttft.map((time, place) => [time, place / (ttft.length - 1)]);
const curves = (points) => board.runs.filter((run) => drawn.has(run.policy))
  .map((run) => ({ name: run.policy, colour: drawn.get(run.policy), points: points(run) }));
function legend() {
  const names = [...drawn].map(([name, paint]) => [name, paint, false]);
  for (const policy of Object.keys(tuned)) names.push([`${policy}, tuned below`, TUNED[policy], true]);
  at("legend").replaceChildren(...names.map(([name, paint, dashed]) => {
    const item = element("span", undefined, "item"), line = element("span", undefined, "key");
    line.style.borderTop = `3px ${dashed ? "dashed" : "solid"} ${paint}`;
    item.append(line, name);
    return item;
  }));
}
function draw() {
  rows(); legend();
  const extra = Object.entries(tuned).map(([policy, point]) => ({ name: `${policy}, tuned`, colour: TUNED[policy], dash: "5 4", points: shares(point.ttft) }));
  chart(at("cdf"), [...curves((run) => shares(run.ttft)), ...extra], { log: true, least: 0.01, most: 1, x: "seconds" });
  chart(at("again"), curves((run) => run.again.map((tokens, place) => [(place + 0.5) * run.stretch_s, tokens / run.stretch_s])), { x: "simulated seconds" });
  const spread = (values) => values.length > 1 ? values.map((value, place) => [place + 1, value]) : [[0, values[0]], [1, values[0]]];
  chart(at("engines"), curves((run) => spread(run.again_by_engine.map((tokens) => tokens / 1e6))), { x: "engine, most first" });
  chart(at("work"), curves((run) => {
    const mean = run.worked_s.reduce((sum, value) => sum + value, 0) / run.worked_s.length || 1;
    return spread(run.worked_s.map((value) => value / mean));
  }), { x: "engine, busiest first" });
}
function tuners() {
  at("weights").hidden = !board.grid.length;
  at("points").textContent = board.grid.length;
  at("tuners").replaceChildren(...[...new Set(board.grid.map((point) => point.policy))].map(tuner));
}
function tuner(policy) {
  const points = board.grid.filter((point) => point.policy === policy);
  const names = points[0].weights.map(([name]) => name);
  const values = names.map((_, place) => [...new Set(points.map((point) => point.weights[place][1]))].sort((a, b) => a - b));
  // The grid was made around what the policy is run with beside the others.
  const start = points.find((point) => point.set);
  const host = element("div", undefined, "tuner"), controls = element("div"), result = element("div");
  controls.append(element("h3", policy));
  const sliders = names.map((name, place) => {
    const label = element("label", name), shown = element("output"), slider = element("input");
    Object.assign(slider, { type: "range", min: 0, max: values[place].length - 1, step: 1 });
    slider.value = values[place].indexOf(start.weights[place][1]);
    slider.addEventListener("input", () => { move(); draw(); });
    label.append(shown, slider); controls.append(label);
    return { slider, shown };
  });
  function move() {
    const wanted = sliders.map(({ slider }, place) => values[place][slider.value]);
    sliders.forEach(({ shown }, place) => { shown.textContent = wanted[place]; });
    const point = points.find((one) => one.weights.every(([, value], place) => value === wanted[place]));
    tuned[policy] = point;
    outcome(result, point, points);
  }
  move();
  host.append(controls, result);
  return host;
}
function outcome(host, point, points) {
  const best = points.reduce((a, b) => (b.row.ttft_mean < a.row.ttft_mean ? b : a));
  const table = element("table"), head = element("tr"), body = element("tbody");
  head.append(element("th", "weights"), ...COLUMNS.map(([, title]) => element("th", title)));
  const line = (title, row) => {
    const made = element("tr");
    made.append(element("td", title), ...COLUMNS.map(([, , show]) => element("td", show(row))));
    return made;
  };
  const told = best.weights.map(([name, value]) => `${name.replace(/_(charge_)?tokens$|^weight_/g, "")} ${value}`).join(", ");
  body.append(head, line("as the sliders stand (dashed in the chart)", point.row), line(`shortest mean of the grid: ${told}`, best.row));
  table.append(body);
  const size = point.terms.reduce((sum, [, value]) => sum + Math.abs(value), 0) || 1;
  const terms = point.terms.map(([name, value]) => `${name} ${short(value)} (${Math.round(100 * Math.abs(value) / size)} %)`);
  host.replaceChildren(table, element("div", `What the chosen engine's score was made of, on average: ${terms.join(" · ")}`, "terms"));
}
for (const one of boards) {
  const button = element("button", `${one.trace} · N=${one.backends}`);
  button.addEventListener("click", () => choose(one));
  at("boards").append(button);
}
at("facts").textContent = `Commit ${facts.commit}${facts.uncommitted_changes ? " with changes" : ""} · ${facts.processor}, ${facts.cores} cores · ${facts.kernel} · ${facts.compiler}`;
choose(boards[0]);
