"use strict";
// Values of a figure where one points: its key shows them. The points come in the units of the drawing.
const NS = "http://www.w3.org/2000/svg";
for (const figure of document.querySelectorAll("figure[data-points]")) {
  const { box: [left, top, right, bottom], near, series } = JSON.parse(figure.dataset.points);
  const svg = figure.querySelector("svg"), key = figure.querySelector(".key");
  const head = key.querySelector(".at"), cells = [...key.querySelectorAll("output")];
  const before = [head.textContent, ...cells.map((cell) => cell.textContent)];
  const add = (name, attributes) => {
    const element = svg.appendChild(document.createElementNS(NS, name));
    for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
    return element;
  };
  const line = add("line", { y1: top, y2: bottom, stroke: "var(--grey)", "stroke-width": 0.8, visibility: "hidden" });
  const dots = series.map((_, i) =>
    add("circle", { r: 3.5, fill: cells[i].dataset.colour, stroke: "var(--paper)", visibility: "hidden" }));
  const places = [...new Set(series.flat().map((point) => point[0]))].sort((a, b) => a - b);
  const nearest = (points, far) => points.reduce((best, p) => (best && far(best) <= far(p) ? best : p), null);
  const step = (points) => (points.length > 1 ? (points.at(-1)[0] - points[0][0]) / (points.length - 1) : 4) + 0.1;

  const mark = (found, x) => {
    found.forEach((point, i) => {
      dots[i].setAttribute("visibility", point ? "visible" : "hidden");
      if (point) { dots[i].setAttribute("cx", point[0]); dots[i].setAttribute("cy", point[1]); }
    });
    line.setAttribute("visibility", near === "x" ? "visible" : "hidden");
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
  };
  const show = (x, y) => {
    const far = near === "x" ? (p) => Math.abs(p[0] - x) : (p) => Math.hypot(p[0] - x, p[1] - y);
    const all = nearest(series.flat(), far);
    if (!all) return;
    const found = series.map((points) => {
      const best = nearest(points, far);
      return best && (near === "x" ? far(best) <= step(points) : best === all) ? best : null;
    });
    mark(found, all[0]);
    head.textContent = all[2];
    cells.forEach((cell, i) => { cell.textContent = found[i] ? found[i][3] : "–"; });
    key.classList.add("pointed");
    at = all[0];
  };
  const hide = () => {
    mark(series.map(() => null), 0);
    line.setAttribute("visibility", "hidden");
    [head, ...cells].forEach((element, i) => { element.textContent = before[i]; });
    key.classList.remove("pointed");
  };
  let at = right;
  const pointed = (event) => {
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    show(Math.min(Math.max(place.x, left), right), place.y);
  };
  svg.addEventListener("pointermove", pointed);
  svg.addEventListener("pointerdown", pointed);
  svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move || near !== "x") return;
    event.preventDefault();
    const index = Math.max(places.findIndex((place) => place >= at), 0);
    show(places[Math.min(Math.max(index + move, 0), places.length - 1)], 0);
  });
}
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const text = button.parentElement.querySelector("pre");
    getSelection().selectAllChildren(text);
    try { await navigator.clipboard.writeText(text.textContent); button.textContent = "Copied"; }
    catch { button.textContent = "Selected: copy it with the keyboard"; }
  });
}
