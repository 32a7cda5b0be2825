// Charts of runs, drawn by uPlot. This code adds marks, tooltips, zoom, touch and keys.
const HEIGHT = 230;
// uPlot and saved pictures need fonts as text.
const FONT = "12px system-ui, sans-serif";
let charts = [];

function uplotSeries(line) {
  const stroke = colour(line.colourIndex);
  const points = { show: line.kind === "valid" || line.xs.length <= 30, size: 5, fill: stroke, stroke };
  const drawn = { stroke, width: 1.5, points, dash: line.kind === "valid" ? [6, 3] : undefined };
  if (!line.smooth) return [drawn];
  return [
    { ...drawn, stroke: stroke + "55", points: { show: false } },
    { ...drawn, width: 2, points: { show: false } },
  ];
}

// The places on the x-axis of values above the y-axis, without those that are nearer than `gap` to the one before.
function offScale(line, top, position, gap) {
  const places = [];
  line.ys.forEach((y, i) => {
    if (y === null || y <= top || !inView(line.xs[i])) return;
    const x = position(line.xs[i]);
    if (!places.length || x - places.at(-1) >= gap) places.push(x);
  });
  return places;
}

// Draws a triangle at the upper edge where a line leaves the chart, and a ring around the best validation.
function drawMarks(u, lines) {
  const { ctx } = u,
    ratio = devicePixelRatio;
  const top = u.scales.y.max;
  ctx.save();
  for (const line of lines) {
    ctx.fillStyle = ctx.strokeStyle = colour(line.colourIndex);
    for (const x of offScale(line, top, x => u.valToPos(x, "x", true), 8 * ratio)) {
      const y = u.bbox.top;
      ctx.beginPath();
      ctx.moveTo(x, y);
      ctx.lineTo(x - 4 * ratio, y + 7 * ratio);
      ctx.lineTo(x + 4 * ratio, y + 7 * ratio);
      ctx.fill();
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

// Draws a chart into an element. `isLog` says whether its y-axis is logarithmic.
function makeChart(spec, place, isLog) {
  const lines = linesOf(spec, isLog);
  const chart = { spec, lines, range: yRange(spec, lines, isLog), isLog, tip: element("div", { class: "tip" }) };
  const tables = lines.flatMap(line => [[line.xs, line.ys], ...(line.smooth ? [[line.xs, line.smooth]] : [])]);
  const options = {
    width: Math.max(200, place.clientWidth),
    height: HEIGHT,
    legend: { show: false },
    scales: { x: { time: false, range: xRange }, y: { range: () => chart.range, distr: isLog ? 3 : 1 } },
    axes: axesOf(isLog),
    series: [{}, ...lines.flatMap(uplotSeries)],
    cursor: {
      y: false,
      points: { show: false },
      drag: { setScale: false },
      bind: { dblclick: () => () => zoom(null) },
    },
    hooks: { draw: [u => drawMarks(u, lines)], setCursor: [followMouse], setSelect: [zoomToSelection] },
  };
  chart.plot = new uPlot(options, uPlot.join(tables), place);
  chart.plot.over.append(chart.tip);
  followTouch(chart.plot);
  followKeys(chart, place);
  return chart;
}

function axesOf(isLog) {
  const grid = { stroke: style("--line"), width: 1 };
  const axis = { stroke: style("--muted"), font: FONT, grid, ticks: { show: false } };
  const x = {
    size: 28,
    splits: (u, _, low, high) => xTicks(low, high, u.width),
    values: (_, ticks) => ticks.map(view.x === "update" ? short : clock),
  };
  const y = {
    size: 58,
    splits: (_, __, low, high) => yTicks(isLog, low, high),
    filter: (_, ticks) => ticks,
    values: (_, ticks) => ticks.map(short),
  };
  return [
    { ...axis, ...x },
    { ...axis, ...y },
  ];
}

function followMouse(u) {
  if (!pointing) pointAt(u.cursor.left < 0 ? null : u.posToVal(u.cursor.left, "x"));
}

function zoomToSelection(u) {
  const { left, width } = u.select;
  if (width > 5) zoom([u.posToVal(left, "x"), u.posToVal(left + width, "x")]);
}

// Arrow keys move the cursor of a focused chart from value to value; Escape hides it.
function followKeys(chart, place) {
  place.onkeydown = event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") pointAt(null);
    if (!step) return;
    event.preventDefault();
    const xs = chart.plot.data[0],
      at =
        chart.plot.cursor.left < 0
          ? -1
          : lastAtMost(xs, chart.plot.posToVal(chart.plot.cursor.left, "x") + 1e-6 * xs.at(-1));
    pointAt(xs[Math.max(0, Math.min(xs.length - 1, at + step))]);
  };
}

function followTouch(plot) {
  const move = event => {
    if (event.pointerType === "touch")
      pointAt(plot.posToVal(event.clientX - plot.over.getBoundingClientRect().left, "x"));
  };
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
  const tolerance = (4 * (xRange()[1] - xRange()[0])) / chart.plot.over.clientWidth;
  return chart.lines.flatMap(line => {
    const i = nearest(line, x, tolerance);
    return i === null
      ? []
      : [
          {
            line,
            x: line.xs[i],
            update: line.run[line.kind].update[i],
            y: line.ys[i],
            smooth: line.smooth?.[i],
            best: i === line.best,
          },
        ];
  });
}

function showTip(chart, x, left) {
  const rows = x === null ? [] : rowsAt(chart, x);
  chart.tip.style.display = rows.length ? "block" : "none";
  chart.tip.replaceChildren(
    ...rows.map(({ line, x: at, update, y, smooth, best }) =>
      element(
        "div",
        {},
        colourKey(line),
        `${line.name}, ${SERIES_NAMES[line.kind]}, update ${update.toLocaleString("en")}${view.x === "update" ? "" : ` (${clock(at)})`}: `,
        element("b", {}, short(y)),
        smooth === undefined || smooth === null ? "" : `, smoothed ${short(smooth)}`,
        best ? ", best" : "",
      ),
    ),
  );
  const width = chart.plot.over.clientWidth;
  chart.tip.style.left = `${Math.max(0, Math.min(left + 12, width - chart.tip.offsetWidth))}px`;
}

function zoom(range) {
  view.zoom = range;
  drawCharts();
}
