"use strict";
// Line charts as SVG. Texts are set as text, never as markup: names come from files.
const SVG = "http://www.w3.org/2000/svg";
const make = (name, attributes, text) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
};
const BOX = { width: 580, height: 250, left: 56, right: 12, top: 10, bottom: 34 };
const short = (value) => {
  if (value === 0) return "0";
  if (Math.abs(value) >= 1e6) return +(value / 1e6).toPrecision(3) + "M";
  if (Math.abs(value) >= 1e4) return +(value / 1e3).toPrecision(3) + "k";
  return String(+value.toPrecision(3));
};
// Round steps for an axis from 0 to `most`.
const ticks = (most) => {
  const rough = most / 4 || 1, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((size) => size >= rough);
  const all = [];
  for (let at = 0; !all.length || all[all.length - 1] < most * 0.9999; at++) all.push(at * step);
  return all;
};
const decades = (least, most) => {
  const all = [];
  for (let power = Math.floor(Math.log10(least)); 10 ** power <= most * 1.0001; power++) all.push(10 ** power);
  return all;
};
// curves: [{colour, points: [[x, y]]}]; options: {log, x, y, least, flat}
function chart(host, curves, options) {
  host.textContent = "";
  const { width, height, left, right, top, bottom } = BOX;
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  const points = curves.flatMap((curve) => curve.points);
  let xs = points.map((point) => point[0]), ys = points.map((point) => point[1]);
  const xMost = Math.max(...xs, options.log ? options.least * 10 : 1e-9), yTicks = ticks(options.most ?? Math.max(...ys, 1e-9));
  const yMost = yTicks[yTicks.length - 1];
  const scale = (value) => options.log
    ? Math.log(Math.max(value, options.least) / options.least) / Math.log(xMost / options.least)
    : value / xMost;
  const px = (value) => left + scale(value) * (width - left - right);
  const py = (value) => height - bottom - (value / yMost) * (height - top - bottom);
  for (const tick of yTicks) {
    svg.append(make("line", { class: "axis", x1: left, x2: width - right, y1: py(tick), y2: py(tick) }));
    svg.append(make("text", { x: left - 6, y: py(tick) + 4, "text-anchor": "end" }, short(tick)));
  }
  for (const tick of options.log ? decades(options.least, xMost) : ticks(xMost).filter((tick) => tick <= xMost)) {
    svg.append(make("line", { class: "axis", x1: px(tick), x2: px(tick), y1: height - bottom, y2: height - bottom + 4 }));
    svg.append(make("text", { x: px(tick), y: height - bottom + 16, "text-anchor": "middle" }, short(tick)));
  }
  svg.append(make("text", { x: (left + width - right) / 2, y: height - 3, "text-anchor": "middle" }, options.x));
  for (const curve of curves) {
    const path = curve.points.map((point, at) => `${at ? "L" : "M"}${px(point[0]).toFixed(1)} ${py(point[1]).toFixed(1)}`);
    const line = make("path", { class: "curve", d: path.join(""), stroke: curve.colour, "stroke-dasharray": curve.dash ?? "" });
    line.append(make("title", {}, curve.name));
    svg.append(line);
  }
  host.append(svg);
}
