// The console's own script: local times, charts, the length of a live view, and the keyboard's way
// to what scrolls.
"use strict";

function localTimes(root) {
  for (const one of root.querySelectorAll("time:not([title])")) {
    const at = new Date(one.dateTime);
    if (!Number.isNaN(at.getTime())) one.title = at.toLocaleString() + " " + document.body.dataset.here;
  }
}

function reachable(root) {
  for (const one of root.querySelectorAll("table, pre")) {
    if (one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight) one.tabIndex = 0;
  }
}

function clock(seconds) {
  const at = new Date(seconds * 1000);
  const text = at.toTimeString().slice(0, at.getSeconds() ? 8 : 5);
  return text === "00:00" ? `${at.getMonth() + 1}/${at.getDate()}` : text;
}

async function chart(figure) {
  if (typeof uPlot === "undefined") return;
  const answer = await fetch(figure.dataset.chart);
  if (!answer.ok) return;
  const found = await answer.json();
  if (found.values.length < 2) return;
  const times = found.values.map((_, n) => (found.first_ms + n * found.step_ms) / 1000);
  const ink = getComputedStyle(document.body).color;
  const axis = { stroke: ink, grid: { stroke: "#8884", width: 1 } };
  const hours = { ...axis, space: 70, values: (_, ticks) => ticks.map(clock) };
  const kept = figure.querySelector("svg");
  if (kept) kept.remove();
  new uPlot({
    width: figure.clientWidth || 320, height: 140, padding: [null, 32, null, null], legend: { show: false },
    axes: [hours, axis], scales: { y: { range: (_, least, most) => [0, most || 1] } },
    series: [{}, { stroke: "#d98e04", width: 1.5 }],
  }, [times, found.values], figure);
}

function shorten(table) {
  const most = Number(table.dataset.rowsMax);
  while (table.rows.length > most) table.deleteRow(-1);
}

document.addEventListener("DOMContentLoaded", () => {
  localTimes(document);
  reachable(document);
  addEventListener("resize", () => reachable(document));
  document.querySelectorAll("[data-chart]").forEach(chart);
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
