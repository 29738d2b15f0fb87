// The console's own script: local times, charts, and the length of a live view.
"use strict";

function localTimes(root) {
  for (const one of root.querySelectorAll("time:not([title])")) {
    const at = new Date(one.dateTime);
    if (!Number.isNaN(at.getTime())) one.title = at.toLocaleString() + " " + document.body.dataset.here;
  }
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
  const kept = figure.querySelector("svg");
  if (kept) kept.remove();
  new uPlot({
    width: figure.clientWidth || 320, height: 140, legend: { show: false },
    axes: [axis, axis], scales: { y: { range: (_, least, most) => [0, most || 1] } },
    series: [{}, { stroke: "#d98e04", width: 1.5 }],
  }, [times, found.values], figure);
}

function shorten(table) {
  const most = Number(table.dataset.rowsMax);
  while (table.rows.length > most) table.deleteRow(-1);
}

document.addEventListener("DOMContentLoaded", () => {
  localTimes(document);
  document.querySelectorAll("[data-chart]").forEach(chart);
  const tail = document.getElementById("tail");
  new MutationObserver((changes) => {
    for (const one of changes) if (one.target.querySelectorAll) localTimes(one.target);
    if (tail) shorten(tail);
  }).observe(document.getElementById("main"), { childList: true, subtree: true });
});
