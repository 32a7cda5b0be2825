// The page around the charts: the runs and their results, differences, sample translations, cost, and options.
const logarithmic = Object.fromEntries(CHARTS.map(spec => [spec.id, Boolean(spec.log)]));
const hidden = new Set();
const SAMPLES = 3; // that are shown at once

function drawCharts() {
  const had = document.activeElement?.dataset?.chart;
  charts.forEach(chart => chart.plot.destroy());
  charts = [];
  const specs = CHARTS.filter(spec => linesOf(spec, false).length);
  const figures = specs.map(spec => drawFrame(spec));
  // A phone shows the first charts, and the others on request.
  const shown = matchMedia("(max-width: 640px)").matches ? 2 : figures.length;
  $("charts").replaceChildren(
    ...(figures.length ? figures.slice(0, shown) : [element("p", { class: "muted" }, "No values were recorded yet.")]),
  );
  $("more-charts").hidden = figures.length <= shown;
  $("more-charts").replaceChildren($("more-charts").firstElementChild, ...figures.slice(shown));
  specs.forEach((spec, i) => drawChart(spec, figures[i]));
  const [from, to] = xRange();
  for (const [id, x] of [["from", from], ["to", to]]) {
    if ($(id) !== document.activeElement) $(id).value = Math.round(x); // somebody may be typing
  }
  if (had) document.querySelector(`[data-chart="${had}"]`)?.focus();
}

function drawFrame(spec) {
  const log = element("input", { type: "checkbox" });
  log.checked = logarithmic[spec.id];
  log.addEventListener("change", () => {
    logarithmic[spec.id] = log.checked;
    drawCharts();
  });
  const button = (text, act) => {
    const made = element("button", { class: "no-print" }, text);
    made.addEventListener("click", act);
    return made;
  };
  const tools = element(
    "div",
    { class: "tools" },
    element("span", {}, spec.unit ?? ""),
    element(
      "details",
      { class: "no-print" },
      element("summary", { "aria-label": `Menu of ${spec.title}` }, "menu"),
      element(
        "div",
        {},
        ...(spec.isScore ? [] : [element("label", {}, log, " logarithmic")]),
        button("save as CSV", () => save(`${spec.id}.csv`, "text/csv", asCsv(spec))),
        button("save as SVG", () => saveSvg(`${spec.id}.svg`, asSvg(charts.find(chart => chart.spec === spec)))),
      ),
    ),
  );
  return element(
    "figure",
    {},
    element("figcaption", {}, spec.title),
    tools,
    element("div", { class: "plot", tabindex: 0, role: "img", "aria-label": spec.title, "data-chart": spec.id }),
    element("div", { class: "note" }),
  );
}

function drawChart(spec, figure) {
  const chart = makeChart(spec, figure.querySelector(".plot"), logarithmic[spec.id]);
  charts.push(chart);
  figure.querySelector(".note").textContent = notShown(chart.lines, chart.range, chart.isLog);
}

function drawRuns() {
  $("runs").replaceChildren(
    ...data.runs.map(run => {
      const facts = run.facts.map(([name, value, note]) =>
        element("div", {}, element("dt", {}, name), element("dd", {}, value, note ? element("small", {}, note) : "")),
      );
      const card = element(
        "section",
        { class: "run" },
        element("h2", {}, colourKey(run), run.name),
        element(
          "div",
          {},
          element("span", { class: `state ${run.status}` }, run.status),
          run.message ? `: ${run.message}` : "",
        ),
        element("p", {}, run.outlook),
        element("dl", {}, ...facts),
      );
      for (const direction of directionsOf(run)) card.append(colourKey(direction), `${direction.code} `);
      card.append(...run.commands.map(([name, line]) => commandOf(name, line)));
      return card;
    }),
  );
}

function commandOf(name, line) {
  const button = element("button", { class: "no-print" }, "copy"),
    code = element("code", {}, line);
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(code); // for browsers that refuse access to the clipboard
    await navigator.clipboard.writeText(line);
    button.textContent = "copied";
    setTimeout(() => {
      button.textContent = "copy";
    }, 2000);
  });
  return element("div", { class: "command" }, element("span", { class: "muted" }, name), code, button);
}

function drawShown() {
  if (data.runs.length < 2) return;
  $("shown").replaceChildren(
    ...data.runs.map(run => {
      const box = element("input", { type: "checkbox" });
      box.checked = !run.hidden;
      box.addEventListener("change", () => {
        run.hidden = !box.checked;
        box.checked ? hidden.delete(run.name) : hidden.add(run.name);
        drawCharts();
      });
      return element("label", {}, box, " ", colourKey(run), run.name);
    }),
  );
}

// What differs between any two runs, also if they have the same options.
const ALWAYS_DIFFERENT = ["run folder", "--save-dir", "written"];

function drawOptions() {
  const names = [...new Set(data.runs.flatMap(run => Object.keys(run.config)))];
  const rows = names.map(name => [name, ...data.runs.map(run => run.config[name] ?? "")]);
  const head = ["", ...data.runs.map(run => run.name)];
  drawTable($("config"), [head, ...rows], () => false);
  if (data.runs.length < 2) return;
  const table = element("table", { class: "stacked" });
  const differing = rows.filter(
    ([name]) => !ALWAYS_DIFFERENT.includes(name) && new Set(recordedValues(name)).size > 1,
  );
  drawTable(table, [head, ...differing], () => false);
  $("differences").replaceChildren(
    element("h2", {}, "Differences between the runs"),
    differing.length ? table : element("p", { class: "muted" }, "The runs have the same options."),
  );
}

// The values of an option in all runs that recorded it. Earlier versions had fewer options.
function recordedValues(name) {
  return data.runs.filter(run => name in run.config).map(run => run.config[name]);
}

// One block for each sentence: source, reference, and the translations of all runs, the newest of each or all of them.
function drawSamples() {
  const blocks = new Map();
  for (const run of data.runs)
    for (const sample of run.samples) {
      const key = JSON.stringify([sample.direction, sample.source, sample.reference]);
      if (!blocks.has(key))
        blocks.set(key, [
          ...(sample.direction ? [["direction", "", sample.direction]] : []),
          ["source", "", sample.source],
          ["reference", "", sample.reference],
        ]);
      const outputs = $("history").checked ? sample.outputs : sample.outputs.slice(-1);
      for (const [update, output] of outputs)
        blocks
          .get(key)
          .push([`${data.runs.length > 1 ? `${run.name}, ` : ""}update ${update.toLocaleString("en")}`, run, output]);
    }
  const row = ([label, run, text]) =>
    element(
      "div",
      {},
      element("span", { class: "muted" }, run ? colourKey(run) : "", label),
      element("span", { dir: "auto" }, text),
    );
  const made = [...blocks.values()].map(rows => element("div", { class: "sample" }, ...rows.map(row)));
  const none = element("p", { class: "muted" }, "There are no translations yet; the last validation makes some.");
  $("samples").replaceChildren(...(made.length ? made.slice(0, SAMPLES) : [none]));
  $("more-samples").hidden = made.length <= SAMPLES;
  $("more-samples").lastElementChild.replaceChildren(...made.slice(SAMPLES));
}

function drawAll() {
  data.runs.forEach((run, i) => {
    run.colourIndex = i;
    run.hidden = hidden.has(run.name);
  });
  drawRuns();
  drawShown();
  drawCharts();
  drawOptions();
  drawSamples();
  $("cost-note").textContent = data.cost.note;
  drawTable($("cost"), data.cost.rows, i => i > 0);
}

// Asks the server of `nmt report --watch` for newer data.
async function refresh() {
  try {
    const answer = await fetch(`data?${data.version}`);
    if (answer.status === 200) {
      data = await answer.json();
      drawAll();
    }
    $("live").textContent = answer.ok
      ? `The page is up to date at ${new Date().toLocaleTimeString()}.`
      : "The log cannot be read at the moment; the terminal of nmt report says why.";
  } catch {
    $("live").textContent = "nmt report --watch has ended; the page shows what it last sent.";
  }
}

$("x").addEventListener("change", event => {
  view.x = event.target.value;
  zoom(null);
});
$("smoothing").addEventListener("input", event => {
  view.smoothing = +event.target.value;
  drawCharts();
});
for (const id of ["from", "to"])
  $(id).addEventListener("change", () => {
    const [from, to] = [+$("from").value, +$("to").value];
    if (from < to) zoom([from, to]);
  });
$("reset").addEventListener("click", () => zoom(null));
$("history").addEventListener("change", drawSamples);
document.addEventListener("pointerdown", event => {
  if (!event.target.closest(".plot")) pointAt(null);
});
const resized = new ResizeObserver(() => {
  for (const chart of charts) {
    const width = chart.plot.root.parentElement.clientWidth;
    if (width && width !== chart.plot.width) chart.plot.setSize({ width, height: HEIGHT });
  }
});
for (const id of ["charts", "more-charts"]) resized.observe($(id));
onColourChange(drawAll);
drawAll();
if (data.version) setInterval(refresh, 3000);
