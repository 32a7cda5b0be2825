// Charts of runs. uPlot draws them. This code adds ranges, ticks, marks, tooltips, zoom and downloads.
const CHARTS = [
  { id: "nll", title: "Loss without label smoothing", unit: "nats per subword", series: ["train", "valid"], clips: true },
  { id: "bleu", title: "BLEU of validation", series: ["valid"], fromZero: true, isScore: true },
  { id: "chrf", title: "chrF of validation", series: ["valid"], fromZero: true, isScore: true },
  { id: "ppl", title: "Perplexity per subword", series: ["train", "valid"], clips: true, log: true },
  { id: "loss", title: "Training loss with label smoothing", unit: "nats per subword", series: ["train"], clips: true },
  { id: "lr", title: "Learning rate", series: ["train"], fromZero: true },
  { id: "gradient_norm", title: "Gradient norm before clipping", series: ["train"], fromZero: true, clips: true },
  { id: "target_tokens_per_second", title: "Target tokens per second", series: ["train"], fromZero: true },
];
const SERIES_NAMES = { train: "training", valid: "validation" };
const CLOCK_STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, ...[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].map(h => 3600 * h)];
const STEPS = Array.from({ length: 60 }, (_, i) => [1, 2, 5][i % 3] * 10 ** (Math.floor(i / 3) - 10));
const HEIGHT = 230;
// uPlot and saved pictures need fonts as text.
const FONT = "12px system-ui, sans-serif";

// What the reader has chosen: the x-axis, the part of it that is shown (null: all), and the strength of smoothing.
const view = { x: "update", zoom: null, smoothing: 0 };
let charts = [];

function short(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e6) return +(value / 1e6).toPrecision(4) + "M";
  if (size >= 1e5) return +(value / 1e3).toPrecision(4) + "k";
  if (size >= 1e3) return (+value.toPrecision(4)).toLocaleString("en");
  return size >= 1e-3 ? String(+value.toPrecision(4)) : value.toExponential(2).replace(/\.?0+e/, "e");
}

function clock(seconds) {
  const s = Math.round(seconds), two = n => String(n).padStart(2, "0");
  return `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
}

const xText = x => view.x === "update" ? x.toLocaleString("en") : clock(x);

// The place of the last value in `xs` that is at most `x`, or -1.
function lastAtMost(xs, x) {
  let low = 0, high = xs.length;
  while (low < high) { const middle = (low + high) >> 1; if (xs[middle] <= x) low = middle + 1; else high = middle; }
  return low - 1;
}

// An exponential moving average that does not favour the first value, as TensorBoard draws it.
function smoothed(ys, strength) {
  let sum = 0, share = 0;
  return ys.map(y => {
    if (y === null) return null;
    sum = strength * sum + (1 - strength) * y;
    share = strength * share + (1 - strength);
    return sum / share;
  });
}

// The lines of a chart: one for each shown run and series that has values.
function linesOf(spec, log) {
  const lines = [];
  for (const run of data.runs) for (const kind of spec.series) {
    const ys = run[kind][spec.id];
    if (run.hidden || !ys || ys.every(y => y === null)) continue;
    const drawable = log ? ys.map(y => y > 0 ? y : null) : ys;
    const smooth = kind === "train" && view.smoothing ? smoothed(drawable, view.smoothing) : null;
    lines.push({ run, kind, xs: run[kind][view.x], ys: drawable, smooth, recorded: ys, best: kind === "valid" ? run.best : null });
  }
  return lines;
}

// The least and the largest x of all shown runs. Charts share them, so that they can be compared.
function xRange() {
  if (view.zoom) return view.zoom;
  const ends = data.runs.filter(run => !run.hidden).flatMap(run => [run.train[view.x].at(-1), run.valid[view.x].at(-1)]);
  return [0, Math.max(0, ...ends.filter(x => x !== undefined)) || 1];
}

// The least and the largest value of a line between two x.
function extremes(line, from, to) {
  let low = Infinity, high = -Infinity;
  line.ys.forEach((y, i) => {
    if (y === null || line.xs[i] < from || line.xs[i] > to) return;
    low = Math.min(low, y); high = Math.max(high, y);
  });
  return [low, high];
}

// The range of the y-axis over what is shown. Where a quantity starts far above the rest, the first tenth of each line
// may lie above the axis; marks then say so.
function yRange(spec, lines, log) {
  const [from, to] = xRange();
  const whole = lines.map(line => extremes(line, from, to));
  let low = Math.min(...whole.map(e => e[0])), high = Math.max(...whole.map(e => e[1]));
  if (!(low <= high)) return [log ? 0.1 : 0, 1];
  if (spec.clips && !log && !view.zoom) {
    const later = lines.map(line => extremes(line, line.xs[0] + (line.xs.at(-1) - line.xs[0]) / 10, to)[1]);
    const settled = Math.max(...later.filter(Number.isFinite));
    if (high > 1.5 * settled) high = settled;
  }
  if (log) return low === high ? [low / 2, high * 2] : [low / 1.1, high * 1.1];
  if (spec.fromZero && low >= 0) return [0, high * 1.05 || 1];
  const margin = (high - low) * 0.05 || Math.abs(high) * 0.05 || 0.5;
  return [low >= 0 ? Math.max(0, low - margin) : low - margin, high + margin];
}

// 1-2-5 ticks of a logarithmic axis: fewer over many decades, and those of a linear axis where these are too few.
function logTicks(low, high) {
  const decades = Math.log10(high / low), digits = decades < 3 ? [1, 2, 5] : [1], every = Math.ceil(decades / 8), found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    if (power % every === 0) for (const digit of digits) found.push(+(digit * 10 ** power).toPrecision(6));
  const inside = found.filter(tick => tick >= low && tick <= high);
  return inside.length < 3 ? linearTicks(low, high, 5) : inside;
}

function linearTicks(low, high, wanted, steps = STEPS) {
  const step = steps.find(s => s >= (high - low) / wanted) ?? steps.at(-1), found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12); i++) found.push(+(i * step).toPrecision(12));
  return found;
}

const xTicks = (low, high, width) => linearTicks(low, high, Math.max(2, width / 90), view.x === "update" ? STEPS : CLOCK_STEPS);
const yTicks = (log, low, high) => log ? logTicks(low, high) : linearTicks(low, high, 5);

// Says in words which values the chart does not show.
function notShown(lines, range, log) {
  const above = lines.flatMap(line => line.ys.filter((y, i) => y !== null && y > range[1] && inView(line.xs[i])));
  const parts = [];
  if (above.length) parts.push(`▲ ${above.length.toLocaleString("en")} ${above.length === 1 ? "value" : "values"} up to ${short(above.reduce((a, b) => Math.max(a, b)))} above the axis`);
  const dropped = log ? lines.reduce((sum, line) => sum + line.recorded.filter(y => y !== null && y <= 0).length, 0) : 0;
  if (dropped) parts.push(`${dropped.toLocaleString("en")} ${dropped === 1 ? "value" : "values"} of 0 or less cannot be shown on a logarithmic axis`);
  const missing = lines.reduce((sum, line) => sum + line.recorded.filter(y => y === null).length, 0);
  if (missing) parts.push(`${missing.toLocaleString("en")} ${missing === 1 ? "value was" : "values were"} not finite or not recorded`);
  return parts.join("; ");
}

const inView = x => !view.zoom || (view.zoom[0] <= x && x <= view.zoom[1]);

// The place in the line of the value that is nearest to x; null beyond the ends of the line.
function nearest(line, x, tolerance) {
  const { xs, ys } = line;
  let first = 0, last = xs.length - 1;
  while (ys[first] === null) first++;
  while (ys[last] === null) last--;
  if (x < xs[first] - tolerance || x > xs[last] + tolerance) return null;
  let before = Math.max(first, lastAtMost(xs, x)), after = Math.min(last, lastAtMost(xs, x) + 1);
  while (ys[before] === null) before--;
  while (ys[after] === null) after++;
  return x - xs[before] <= xs[after] - x ? before : after;
}

function uplotSeries(line) {
  const stroke = colour(line.run.number);
  const points = { show: line.kind === "valid" || line.xs.length <= 30, size: 5, fill: stroke, stroke };
  const drawn = { stroke, width: 1.5, points, dash: line.kind === "valid" ? [6, 3] : undefined };
  if (!line.smooth) return [drawn];
  return [{ ...drawn, stroke: stroke + "55", points: { show: false } }, { ...drawn, width: 2, points: { show: false } }];
}

// The places on the x-axis of values above the y-axis, without those that are nearer than `gap` to the one before.
function offScale(line, top, position, gap) {
  const found = [];
  line.ys.forEach((y, i) => {
    if (y === null || y <= top || !inView(line.xs[i])) return;
    const x = position(line.xs[i]);
    if (!found.length || x - found.at(-1) >= gap) found.push(x);
  });
  return found;
}

// Draws a triangle at the upper edge where a line leaves the chart, and a ring around the best validation.
function drawMarks(u, lines) {
  const { ctx } = u, ratio = devicePixelRatio;
  const top = u.scales.y.max;
  ctx.save();
  for (const line of lines) {
    ctx.fillStyle = ctx.strokeStyle = colour(line.run.number);
    for (const x of offScale(line, top, x => u.valToPos(x, "x", true), 8 * ratio)) {
      const y = u.bbox.top;
      ctx.beginPath();
      ctx.moveTo(x, y); ctx.lineTo(x - 4 * ratio, y + 7 * ratio); ctx.lineTo(x + 4 * ratio, y + 7 * ratio); ctx.fill();
    }
    if (line.best !== null && line.ys[line.best] !== null && inView(line.xs[line.best]) && line.ys[line.best] <= top) {
      ctx.lineWidth = 2 * ratio;
      ctx.beginPath();
      ctx.arc(u.valToPos(line.xs[line.best], "x", true), u.valToPos(line.ys[line.best], "y", true), 6 * ratio, 0, 7);
      ctx.stroke();
    }
  }
  ctx.restore();
}

function makeChart(spec, place, state) {
  const lines = linesOf(spec, state.log), range = yRange(spec, lines, state.log);
  const tip = element("div", { class: "tip" }), axis = { stroke: style("--muted"), font: FONT, grid: { stroke: style("--line"), width: 1 }, ticks: { show: false } };
  const tables = lines.flatMap(line => [[line.xs, line.ys], ...(line.smooth ? [[line.xs, line.smooth]] : [])]);
  const chart = { spec, lines, range, tip, log: state.log };
  const options = {
    width: Math.max(200, place.clientWidth), height: HEIGHT, legend: { show: false },
    scales: { x: { time: false, range: xRange }, y: { range: () => range, distr: state.log ? 3 : 1 } },
    axes: [
      { ...axis, size: 28, splits: (u, _, low, high) => xTicks(low, high, u.width), values: (_, ticks) => ticks.map(view.x === "update" ? short : clock) },
      { ...axis, size: 58, splits: (_, __, low, high) => yTicks(state.log, low, high), filter: (_, ticks) => ticks, values: (_, ticks) => ticks.map(short) },
    ],
    series: [{}, ...lines.flatMap(uplotSeries)],
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false }, bind: { dblclick: () => () => { zoom(null); } } },
    hooks: {
      draw: [u => drawMarks(u, lines)],
      setCursor: [u => { if (!pointing) pointAt(u.cursor.left < 0 ? null : u.posToVal(u.cursor.left, "x")); }],
      setSelect: [u => { if (u.select.width > 5) zoom([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]); }],
    },
  };
  chart.plot = new uPlot(options, uPlot.join(tables), place);
  chart.plot.over.append(tip);
  followTouch(chart.plot);
  followKeys(chart, place);
  return chart;
}

// Arrow keys move the cursor of a focused chart from value to value; Escape hides it.
function followKeys(chart, place) {
  place.onkeydown = event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") pointAt(null);
    if (!step) return;
    event.preventDefault();
    const xs = chart.plot.data[0], at = chart.plot.cursor.left < 0 ? -1 : lastAtMost(xs, chart.plot.posToVal(chart.plot.cursor.left, "x") + 1e-6 * xs.at(-1));
    pointAt(xs[Math.max(0, Math.min(xs.length - 1, at + step))]);
  };
}

function followTouch(plot) {
  const move = event => { if (event.pointerType === "touch") pointAt(plot.posToVal(event.clientX - plot.over.getBoundingClientRect().left, "x")); };
  plot.over.addEventListener("pointerdown", move);
  plot.over.addEventListener("pointermove", move);
}

let pointing = false;

// Shows the cursor and the tooltips of all charts at x; hides them if x is null.
function pointAt(x) {
  pointing = true;
  for (const chart of charts) {
    const left = x === null ? -10 : chart.plot.valToPos(x, "x");
    chart.plot.setCursor({ left, top: x === null ? -10 : 0 });
    showTip(chart, x, left);
  }
  pointing = false;
}

// What the tooltip says about x: one row for each line that has values on both sides of x.
function rowsAt(chart, x) {
  const tolerance = 4 * (xRange()[1] - xRange()[0]) / chart.plot.over.clientWidth;
  return chart.lines.flatMap(line => {
    const i = nearest(line, x, tolerance);
    return i === null ? [] : [{ line, x: line.xs[i], update: line.run[line.kind].update[i], y: line.ys[i], smooth: line.smooth?.[i], best: i === line.best }];
  });
}

function showTip(chart, x, left) {
  const rows = x === null ? [] : rowsAt(chart, x);
  chart.tip.style.display = rows.length ? "block" : "none";
  chart.tip.replaceChildren(...rows.map(({ line, x: at, update, y, smooth, best }) => element("div", {},
    element("span", { class: "key", style: `background:${colour(line.run.number)}` }),
    `${line.run.name}, ${SERIES_NAMES[line.kind]}, update ${update.toLocaleString("en")}${view.x === "update" ? "" : ` (${clock(at)})`}: `,
    element("b", {}, short(y)), smooth === undefined || smooth === null ? "" : `, smoothed ${short(smooth)}`, best ? ", best" : "")));
  const width = chart.plot.over.clientWidth;
  chart.tip.style.left = `${Math.max(0, Math.min(left + 12, width - chart.tip.offsetWidth))}px`;
}

function zoom(range) { view.zoom = range; drawCharts(); }

function asCsv(spec) {
  const quoted = text => /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  const rows = linesOf(spec, false).flatMap(line => line.recorded.map((y, i) =>
    [quoted(line.run.name), SERIES_NAMES[line.kind], line.run[line.kind].update[i], line.run[line.kind].train_seconds[i], y ?? ""].join(",")));
  return ["run,series,update,train_seconds,value", ...rows].join("\n") + "\n";
}
