// The console's own script: local times, charts, the length of a live view, what could not be
// refreshed, and the keyboard's way to what scrolls.
"use strict";

const AXIS_FONT = "12px system-ui, sans-serif";
const CHART_HEIGHT = 180;

function localTimes(root) {
  for (const one of root.querySelectorAll("time:not([data-local])")) {
    const at = new Date(one.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    one.dataset.local = at.toLocaleString();
    one.title += `\n${one.dataset.local} ${document.body.dataset.here}`;
  }
}

// A box that scrolls takes the focus, and has the name of the heading before it.
function reachable(root) {
  for (const one of root.querySelectorAll(".table, pre")) {
    if (one.scrollWidth <= one.clientWidth && one.scrollHeight <= one.clientHeight) continue;
    one.tabIndex = 0;
    one.setAttribute("role", "group");
    const isBefore = (other) => other.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING;
    const heading = [...document.querySelectorAll("main :is(h1, h2)")].filter(isBefore).pop();
    one.setAttribute("aria-label", heading.textContent.trim());
  }
}

function clock(seconds) { // in UTC, as all times of the pages
  return new Date(seconds * 1000).toISOString().slice(11, seconds % 60 ? 19 : 16);
}

function tick(seconds) { // the first one of a day has its date
  const date = new Date(seconds * 1000).toISOString().slice(5, 11).replace("T", " ");
  return (seconds % 86400 ? "" : date) + clock(seconds);
}

const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });

// The width of a vertical axis: that of its longest label, the tick and the gap.
function axisWidth(plot, labels, axis) {
  const longest = (labels || []).reduce((a, b) => (b.length > a.length ? b : a), "");
  plot.ctx.font = AXIS_FONT;
  const width = plot.ctx.measureText(longest).width;
  return Math.ceil(width) + plot.axes[axis].ticks.size + plot.axes[axis].gap + 6;
}

async function points(figure) {
  const answer = await fetch(figure.dataset.chart);
  const found = answer.ok ? await answer.json() : { values: [] };
  const times = found.values.map((_, n) => (found.first_ms + n * found.step_ms) / 1000);
  return [times, found.values];
}

const whole = (value) => value.toLocaleString("en", { maximumFractionDigits: 1 });

// The value under the cursor, or the last one, beside the title; and for a screen reader.
function told(figure) {
  const { root, data: [times, values], cursor } = figure.chart;
  const at = cursor.idx ?? values.length - 1;
  const text = values[at] == null ? "" : `${clock(times[at])}  ${whole(values[at])}`;
  figure.querySelector("output").textContent = text;
  root.setAttribute("aria-valuemax", values.length - 1);
  root.setAttribute("aria-valuenow", at);
  root.setAttribute("aria-valuetext", text || clock(times[at]));
  const known = values.filter((one) => one != null);
  const found = { first: known[0], last: known[known.length - 1], highest: Math.max(...known) };
  const title = figure.querySelector(".title").textContent;
  const summary = document.body.dataset.values.replace(/\{(\w+)\}/g, (_, name) => whole(found[name] ?? 0));
  root.setAttribute("aria-label", known.length ? `${title}: ${summary}` : title);
}

// The keys of a slider move the cursor of a chart along its values.
function moving(figure) {
  const { root } = figure.chart;
  root.tabIndex = 0;
  root.setAttribute("role", "slider");
  root.setAttribute("aria-readonly", "true");
  root.setAttribute("aria-valuemin", 0);
  root.addEventListener("keydown", (event) => {
    const plot = figure.chart, times = plot.data[0];
    const last = times.length - 1, at = plot.cursor.idx ?? last, far = Math.ceil(last / 10);
    const to = {
      ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1,
      PageDown: at - far, PageUp: at + far, Home: 0, End: last,
    }[event.key];
    if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const left = plot.valToPos(times[Math.max(0, Math.min(last, to))], "x");
    plot.setCursor({ left, top: 0 });
  });
  root.addEventListener("blur", () => figure.chart.setCursor({ left: -10, top: -10 }));
}

async function chart(figure) {
  if (typeof uPlot === "undefined") return;
  const found = await points(figure);
  if (found[0].length < 2) return;
  if (figure.chart) {
    figure.chart.setData(found);
    told(figure);
    return;
  }
  const color = (element) => getComputedStyle(element).color;
  const axis = {
    stroke: color(figure.querySelector("figcaption")), font: AXIS_FONT,
    grid: { stroke: "#8883", width: 1 }, ticks: { size: 4, stroke: "#8883" },
  };
  const kept = figure.querySelector("svg");
  if (kept) kept.remove();
  const room = () => figure.clientWidth - parseFloat(getComputedStyle(figure).paddingLeft) * 2;
  figure.chart = new uPlot({
    width: room(), height: CHART_HEIGHT, padding: [8, 40, 0, null], legend: { show: false },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
    axes: [
      { ...axis, space: 80, size: 30, values: (_, ticks) => ticks.map(tick) },
      { ...axis, size: axisWidth, values: (_, ticks) => ticks.map((one) => short.format(one)) },
    ],
    scales: { y: { range: (_, least, most) => [0, most || 1] } },
    hooks: { setCursor: [() => figure.chart && told(figure)] },
    series: [{}, { stroke: color(document.querySelector(".brand")), width: 1.5, fill: "#d98e0422" }],
  }, found, figure);
  moving(figure);
  told(figure);
  new ResizeObserver(() => figure.chart.setSize({ width: room(), height: CHART_HEIGHT })).observe(figure);
}

function shorten(table) {
  const most = Number(table.dataset.rowsMax);
  while (table.rows.length > most) table.deleteRow(-1);
}

// Of a form only the fields for what is chosen.
function fitting(form) {
  for (const field of form.querySelectorAll("[data-only]")) {
    const chosen = form.elements[field.dataset.only].value;
    field.hidden = !field.dataset.values.split("|").includes(chosen);
  }
}

function links(href) {
  return [...document.querySelectorAll("#live a")].filter((one) => one.getAttribute("href") === href);
}

// One toast for each text, which goes when the next refresh succeeds.
function toast(text) {
  const room = document.getElementById("toasts");
  if ([...room.children].some((one) => one.textContent === text)) return;
  const one = document.createElement("p");
  one.className = "toast";
  one.textContent = text;
  room.append(one);
}

document.addEventListener("DOMContentLoaded", () => {
  localTimes(document);
  reachable(document);
  document.querySelector("[aria-invalid=true]")?.focus();
  addEventListener("resize", () => reachable(document));
  document.querySelectorAll("[data-chart]").forEach(chart);
  for (const form of document.querySelectorAll("form.act")) {
    fitting(form);
    form.addEventListener("change", () => fitting(form));
  }
  document.addEventListener("htmx:error", () => toast(document.body.dataset.stale));
  let focused = null; // what had the focus before a refresh: its address, and which one of these
  document.addEventListener("htmx:before:swap", () => {
    const one = document.activeElement;
    const href = one && one.closest("#live") && one.getAttribute("href");
    focused = href && { href, at: links(href).indexOf(one) };
  });
  document.addEventListener("htmx:after:swap", () => {
    if (focused) (links(focused.href)[focused.at] || document.body).focus({ preventScroll: true });
    localTimes(document);
    reachable(document);
    document.getElementById("toasts").replaceChildren();
    document.querySelectorAll("[data-chart]").forEach(chart);
  });
  const tail = document.getElementById("tail");
  let isDue = false; // once for all that comes before the next frame
  new MutationObserver((changes) => {
    const added = changes.flatMap((one) => [...one.addedNodes]).filter((one) => one.querySelectorAll);
    if (!added.length) return;
    added.forEach(localTimes);
    if (tail) shorten(tail);
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => { isDue = false; reachable(document); });
  }).observe(document.getElementById("main"), { childList: true, subtree: true });
});
