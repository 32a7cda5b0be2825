// The lines of the report's charts: their values, ranges and ticks, independent of how they are drawn.
const CHARTS = [
  {
    id: "nll",
    title: "Loss without label smoothing",
    unit: "nats per piece",
    series: ["train", "valid"],
    clips: true,
  },
  { id: "bleu", title: "BLEU of validation", series: ["valid"], fromZero: true, isScore: true },
  { id: "paper_bleu", title: "paper-BLEU of validation", series: ["valid"], fromZero: true, isScore: true },
  { id: "exact", title: "Exact matches of validation", series: ["valid"], fromZero: true, isScore: true },
  { id: "chrf", title: "chrF of validation", series: ["valid"], fromZero: true, isScore: true },
  { id: "ppl", title: "Perplexity per piece", series: ["train", "valid"], clips: true, log: true },
  { id: "loss", title: "Training loss", unit: "nats per piece", series: ["train"], clips: true },
  { id: "lr", title: "Learning rate", series: ["train"], fromZero: true },
  { id: "gradient_norm", title: "Gradient norm before clipping", series: ["train"], fromZero: true, clips: true },
  { id: "target_tokens_per_second", title: "Target tokens per second", series: ["train"], fromZero: true },
];
const SERIES_NAMES = { train: "training", valid: "validation" };
const SIXTIETHS = [1, 2, 5, 10, 20, 30];
const CLOCK_STEPS = [1, 60].flatMap(unit => SIXTIETHS.map(n => n * unit));
CLOCK_STEPS.push(...[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].map(hours => 3600 * hours));
const STEPS = Array.from({ length: 60 }, (_, i) => [1, 2, 5][i % 3] * 10 ** (Math.floor(i / 3) - 10));

// What the reader has chosen: the x-axis, the part of it that is shown (null: all), and the strength of smoothing.
const view = { x: "update", zoom: null, smoothing: 0 };

function short(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e6) return +(value / 1e6).toPrecision(4) + "M";
  if (size >= 1e5) return +(value / 1e3).toPrecision(4) + "k";
  if (size >= 1e3) return (+value.toPrecision(4)).toLocaleString("en");
  return size >= 1e-3 ? String(+value.toPrecision(4)) : value.toExponential(2).replace(/\.?0+e/, "e");
}

function clock(seconds) {
  const s = Math.round(seconds),
    two = n => String(n).padStart(2, "0");
  return `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
}

// The place of the last value in `xs` that is at most `x`, or -1.
function lastAtMost(xs, x) {
  let low = 0,
    high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// An exponential moving average that does not favour the first value, as TensorBoard draws it.
function smoothed(ys, strength) {
  let sum = 0,
    share = 0;
  return ys.map(y => {
    if (y === null) return null;
    sum = strength * sum + (1 - strength) * y;
    share = strength * share + (1 - strength);
    return sum / share;
  });
}

// The lines of a chart: one for each shown run and series that has values, and for each direction of a validation.
function linesOf(spec, isLog) {
  const lines = [];
  for (const run of data.runs)
    for (const kind of spec.series) {
      if (run.hidden) continue;
      const whole = { run, kind, name: run.name, colourIndex: run.colourIndex, best: kind === "valid" ? run.best : null };
      addLine(lines, whole, run[kind], spec, isLog);
      for (const direction of kind === "valid" ? directionsOf(run) : [])
        addLine(lines, { ...whole, ...direction, best: null }, run.directions[direction.code], spec, isLog);
    }
  return lines;
}

function addLine(lines, line, columns, spec, isLog) {
  const recorded = columns[spec.id];
  if (!recorded || recorded.every(y => y === null)) return;
  const ys = isLog ? recorded.map(y => (y > 0 ? y : null)) : recorded;
  const smooth = line.kind === "train" && view.smoothing ? smoothed(ys, view.smoothing) : null;
  lines.push({ ...line, xs: columns[view.x], ys, smooth, recorded });
}

// The directions of a model of several languages, each with the name and the colour of its lines.
function directionsOf(run) {
  return Object.keys(run.directions).map((code, i) => ({
    code,
    name: `${run.name} ${code}`,
    colourIndex: data.runs.length + run.colourIndex + i,
  }));
}

// The least and the largest x of all shown runs. Charts share them, so that they can be compared.
function xRange() {
  if (view.zoom) return view.zoom;
  const ends = data.runs
    .filter(run => !run.hidden)
    .flatMap(run => [run.train[view.x].at(-1), run.valid[view.x].at(-1)]);
  return [0, Math.max(0, ...ends.filter(x => x !== undefined)) || 1];
}

// The least and the largest value of a line between two x.
function extremes(line, from, to) {
  let low = Infinity,
    high = -Infinity;
  line.ys.forEach((y, i) => {
    if (y === null || line.xs[i] < from || line.xs[i] > to) return;
    low = Math.min(low, y);
    high = Math.max(high, y);
  });
  return [low, high];
}

// The range of the y-axis over what is shown. Where a quantity starts far above the rest, the first tenth of each line
// may lie above the axis; marks then say so.
function yRange(spec, lines, isLog) {
  const [from, to] = xRange();
  const whole = lines.map(line => extremes(line, from, to));
  let low = Math.min(...whole.map(e => e[0])),
    high = Math.max(...whole.map(e => e[1]));
  if (!(low <= high)) return [isLog ? 0.1 : 0, 1];
  if (spec.clips && !isLog && !view.zoom) {
    const later = lines.map(line => extremes(line, line.xs[0] + (line.xs.at(-1) - line.xs[0]) / 10, to)[1]);
    const settled = Math.max(...later.filter(Number.isFinite));
    if (Number.isFinite(settled) && high > 1.5 * settled) high = settled;
  }
  if (isLog) return low === high ? [low / 2, high * 2] : [low / 1.1, high * 1.1];
  if (spec.fromZero && low >= 0) return [0, high * 1.05 || 1];
  const margin = (high - low) * 0.05 || Math.abs(high) * 0.05 || 0.5;
  return [low >= 0 ? Math.max(0, low - margin) : low - margin, high + margin];
}

// 1-2-5 ticks of a logarithmic axis: fewer over many decades, and those of a linear axis where these are too few.
function logTicks(low, high) {
  const decades = Math.log10(high / low),
    digits = decades < 3 ? [1, 2, 5] : [1],
    every = Math.ceil(decades / 8),
    ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    if (power % every === 0) for (const digit of digits) ticks.push(+(digit * 10 ** power).toPrecision(6));
  const inside = ticks.filter(tick => tick >= low && tick <= high);
  return inside.length < 3 ? linearTicks(low, high, 5) : inside;
}

function linearTicks(low, high, wanted, steps = STEPS) {
  const step = steps.find(s => s >= (high - low) / wanted) ?? 10 ** Math.ceil(Math.log10((high - low) / wanted)),
    ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12); i++)
    ticks.push(+(i * step).toPrecision(12));
  return ticks;
}

const xTicks = (low, high, width) =>
  linearTicks(low, high, Math.max(2, width / 90), view.x === "update" ? STEPS : CLOCK_STEPS);
const yTicks = (isLog, low, high) => (isLog ? logTicks(low, high) : linearTicks(low, high, 5));

const counted = (values, noun) => `${values.length.toLocaleString("en")} ${noun}${values.length === 1 ? "" : "s"}`;

// Says in words which values the chart does not show.
function notShown(lines, range, isLog) {
  const recorded = lines.flatMap(line => line.recorded);
  const above = lines.flatMap(line => line.ys.filter((y, i) => y !== null && y > range[1] && inView(line.xs[i])));
  const dropped = isLog ? recorded.filter(y => y !== null && y <= 0) : [];
  const missing = recorded.filter(y => y === null);
  const parts = [];
  if (above.length) {
    const largest = above.reduce((a, b) => Math.max(a, b));
    parts.push(`▲ ${counted(above, "value")} up to ${short(largest)} above the axis`);
  }
  if (dropped.length) parts.push(`${counted(dropped, "value")} of 0 or less, which a logarithmic axis does not have`);
  if (missing.length) parts.push(`${counted(missing, "record")} without a finite value`);
  return parts.join("; ");
}

const inView = x => !view.zoom || (view.zoom[0] <= x && x <= view.zoom[1]);

// The place in the line of the value that is nearest to x; null beyond the ends of the line.
function nearest({ xs, ys }, x, tolerance) {
  let before = lastAtMost(xs, x),
    after = before + 1;
  while (ys[before] === null) before--;
  while (ys[after] === null) after++;
  if (before < 0) return x >= xs[after] - tolerance ? after : null;
  if (after === xs.length) return x <= xs[before] + tolerance ? before : null;
  return x - xs[before] <= xs[after] - x ? before : after;
}

function asCsv(spec) {
  const quoted = text => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const rows = linesOf(spec, false).flatMap(line =>
    line.recorded.map((y, i) =>
      [
        quoted(line.name),
        SERIES_NAMES[line.kind],
        line.run[line.kind].update[i],
        line.run[line.kind].train_seconds[i],
        y ?? "",
      ].join(","),
    ),
  );
  return ["run,series,update,train_seconds,value", ...rows].join("\n") + "\n";
}
