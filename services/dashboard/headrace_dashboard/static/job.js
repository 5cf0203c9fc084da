"use strict";
// A job's page: loads the charts' tables, then listens and puts in what comes.

const page = document.getElementById("job");
const base = `/jobs/${encodeURIComponent(page.dataset.job)}`;
const eventList = document.getElementById("events");
const MAX_EVENTS = 200;

async function fetchTables(query) {
  const response = await fetch(`${base}/series?${new URLSearchParams(query)}`);
  if (!response.ok) throw new Error(String(response.status));
  return response.json();
}

async function zoomed(chart, first, last) {
  const query = first === null ? { chart } : { chart, first, last };
  return (await fetchTables(query)).charts[chart];
}

const charts = [...document.querySelectorAll("[data-chart]")].map((figure) => new JobChart(figure, zoomed));
const places = new Map();
const askedFor = new Set(); // names of no place, for which the tables were loaded once more

function findPlaces() {
  places.clear();
  for (const chart of charts) {
    chart.lines.forEach((line, column) => {
      if (!places.has(line.name)) places.set(line.name, []);
      places.get(line.name).push([chart, column]);
    });
  }
}

findPlaces();
for (const chart of charts) chart.onLines = findPlaces;

function isNewLine(name) {
  if (places.has(name) || askedFor.has(name) || !charts.some((chart) => chart.takes(name))) return false;
  askedFor.add(name);
  return true;
}

async function loadTables() {
  const { cursor, charts: tables } = await fetchTables({});
  for (const chart of charts) if (!chart.isZoomed) chart.setTable(tables[chart.spec.key]);
  return cursor;
}

function putPoints(points) {
  const touched = new Set();
  let hasNewLine = false;
  for (const [name, step, value] of points) {
    hasNewLine = isNewLine(name) || hasNewLine;
    for (const [chart, column] of places.get(name) ?? []) {
      if (chart.isZoomed) continue;
      chart.put(column, step, value);
      touched.add(chart);
    }
  }
  for (const chart of touched) chart.draw();
  if (points.length) document.getElementById("no-points").hidden = true;
  return hasNewLine || [...touched].some((chart) => chart.table[0].length > MAX_POINTS);
}

function putTiles(last) {
  for (const tile of document.querySelectorAll("[data-tile]")) {
    const value = last[tile.dataset.tile];
    if (value === undefined || value === null) continue;
    tile.hidden = false;
    tile.querySelector(".figure").textContent = tile.dataset.style === "percent" ? formatPercent(value) : formatNumber(value);
  }
}

function putEvents(events) {
  for (const event of events) {
    if (eventList.querySelector(`[data-seq="${Number(event.seq)}"]`)) continue;
    const item = document.createElement("li");
    item.className = "new";
    item.dataset.seq = event.seq;
    item.dataset.level = event.level ?? "info";
    const time = document.createElement("time");
    time.dateTime = event.created_at;
    time.dataset.age = "";
    time.textContent = ageOf(event.created_at);
    const body = document.createElement("div");
    const message = document.createElement("b");
    message.textContent = event.message;
    const type = document.createElement("code");
    type.textContent = event.type;
    body.append(message, type);
    item.append(time, body);
    eventList.prepend(item);
  }
  if (events.length) eventList.querySelector(".none")?.remove();
  while (eventList.children.length > MAX_EVENTS) eventList.lastElementChild.remove();
}

const RELOADING = /checkpoint|policy\.|completed|failed|cancelled|summary/;
let known = "";

function putJob(job, events) {
  const bar = document.getElementById("progress");
  bar.max = job.iterations || 1;
  bar.value = job.iteration;
  bar.dataset.tone = job.tone;
  const set = (name, text) => {
    const element = document.querySelector(`[data-live="${name}"]`);
    if (element) element.textContent = text || "–";
  };
  set("progress_text", job.progress_text);
  set("elapsed", job.elapsed);
  set("status", job.status_text);
  document.querySelector('[data-live="status"]').dataset.tone = job.tone;
  document.title = document.title.replace(/^[^·]*·/, `${job.status_text} ·`);
  const now = JSON.stringify([job.tone, job.reason, job.is_cancellable, job.timeline]);
  const isNews = known && known !== now;
  known = now;
  if (isNews || events.some((event) => RELOADING.test(event.type))) refreshParts().catch(() => {});
}

function listen(cursor) {
  const source = new EventSource(`${base}/live?cursor=${encodeURIComponent(cursor)}`);
  source.addEventListener("update", (message) => {
    const update = JSON.parse(message.data);
    showLive(update.job.is_terminal ? "ended" : "live", update.job.is_terminal ? "ended" : "live");
    putEvents(update.events);
    putTiles(update.last);
    putJob(update.job, update.events);
    if (putPoints(update.points)) loadTables().catch(() => {});
  });
  source.addEventListener("reload", () => { loadTables().catch(() => {}); });
  source.addEventListener("trouble", (message) => {
    showLive("down", JSON.parse(message.data).message);
  });
  source.onerror = () => showLive("down", "reconnecting");
}

async function start() {
  try {
    listen(await loadTables());
  } catch {
    showLive("down", "reconnecting");
    setTimeout(start, 2000);
  }
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const chart of charts) chart.rebuild();
});
start();
