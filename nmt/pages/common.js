"use strict";
// A page of nmt serve has no data of its own; the page that shows it in a frame gives it.
let data = JSON.parse(document.getElementById("data").textContent) ?? parent.attentionData;
const SVG_ELEMENTS = new Set(["svg", "g", "path", "line", "text", "circle", "rect", "title"]);
const COLOUR_COUNT = 8;

const $ = id => document.getElementById(id);

// Makes an HTML or SVG element. Strings among the children become text, never markup.
function element(name, attributes = {}, ...children) {
  const made = SVG_ELEMENTS.has(name)
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// The value of a CSS variable, such as --text. Canvases and saved pictures need it.
function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function colour(colourIndex) {
  return style(`--colour-${colourIndex % COLOUR_COUNT}`);
}

// The mark of the colour of a run or a line.
function colourKey({ colourIndex }) {
  return element("span", { class: "key", style: `background:${colour(colourIndex)}` });
}

function svgText(x, y, string, more = {}) {
  return element("text", { x, y, fill: style("--text"), ...more }, string);
}

// An SVG picture that can be saved.
function picture(width, height, ...children) {
  const fonts = { "font-family": "sans-serif", "font-size": 12 };
  return element(
    "svg",
    { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height, ...fonts },
    element("rect", { width, height, fill: style("--page") }),
    ...children,
  );
}

function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function saveSvg(name, svg) {
  save(name, "image/svg+xml", new XMLSerializer().serializeToString(svg));
}

// Calls `draw` when the colours change: with the theme of the system, and before and after printing.
function onColourChange(draw) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  const printing = on => () => {
    document.documentElement.classList.toggle("printing", on);
    draw();
  };
  addEventListener("beforeprint", printing(true));
  addEventListener("afterprint", printing(false));
}

// Fills a table with rows, of which the first is the head.
function drawTable(table, rows, isNumber) {
  const [head, ...body] = rows;
  table.replaceChildren(
    element("tr", {}, ...head.map((cell, i) => element("th", { class: isNumber(i) ? "number" : "" }, cell))),
    ...body.map(row =>
      element(
        "tr",
        {},
        ...row.map((cell, i) =>
          element("td", { class: isNumber(i) ? "number" : "", "data-label": i ? head[i] : "" }, cell),
        ),
      ),
    ),
  );
}
