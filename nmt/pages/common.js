"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const COLOURS = ["#2f6fdf", "#e07b00", "#1f9d55", "#c2348f", "#7a5af0", "#00a3a3", "#b5541c", "#8a9a00", "#d33c3c", "#607080"];
const SVG_ELEMENTS = new Set(["svg", "path", "line", "text", "circle", "rect"]);

// Makes an HTML or SVG element.
function element(name, attributes = {}, ...children) {
  const made = SVG_ELEMENTS.has(name) ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
