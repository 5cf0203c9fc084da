"use strict";
// What every page may use: ages that tick, tabs, copying, confirmation, parts that refresh, recovery.

const AGES = [[86400, "d"], [3600, "h"], [60, "min"]];

function ageOf(iso) {
  const zoned = /([zZ]|[+-]\d\d:?\d\d)$/.test(iso) ? iso : iso + "Z";
  const seconds = (Date.now() - Date.parse(zoned)) / 1000;
  if (!Number.isFinite(seconds)) return "";
  for (const [size, unit] of AGES) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  return seconds < 10 ? "just now" : `${Math.floor(seconds)} s ago`;
}

function tickAges() {
  for (const time of document.querySelectorAll("time[data-age]")) {
    const text = ageOf(time.dateTime);
    if (text && time.textContent !== text) time.textContent = text;
  }
}

function showLive(state, text) {
  const element = document.getElementById("live-state");
  element.hidden = false;
  element.dataset.state = state;
  element.textContent = text;
}

// Fetches this page again and takes over the named parts (all when no name is given).
async function refreshParts(names) {
  const response = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!response.ok) throw new Error(String(response.status));
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const part of fresh.querySelectorAll("[data-fragment]")) {
    const name = part.dataset.fragment;
    if (names && !names.includes(name)) continue;
    const here = document.querySelector(`[data-fragment="${CSS.escape(name)}"]`);
    if (here && here.innerHTML !== part.innerHTML) here.replaceChildren(...part.childNodes);
  }
  tickAges();
}

function pollParts() {
  const part = document.querySelector("[data-poll]");
  if (!part) return;
  const wait = Number(part.dataset.poll) * 1000;
  const again = async () => {
    if (!document.hidden) {
      try {
        await refreshParts([part.dataset.fragment]);
        showLive("live", "live");
      } catch {
        showLive("down", "The API does not answer");
      }
    }
    setTimeout(again, wait);
  };
  setTimeout(again, wait);
}

// An error page of an API that is down: ask whether it answers, then show what was asked for.
function recover() {
  if (!document.querySelector("[data-recover]")) return;
  setInterval(async () => {
    const response = await fetch("/ready").catch(() => null);
    if (response && response.ok) location.reload();
  }, 2000);
}

document.addEventListener("click", (event) => {
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    navigator.clipboard?.writeText(copy.dataset.copy).then(() => { copy.textContent = "Copied"; });
  }
  const tab = event.target.closest("[role=tab]");
  if (tab) {
    for (const other of tab.parentElement.children) {
      other.setAttribute("aria-selected", String(other === tab));
      document.getElementById(other.getAttribute("aria-controls")).hidden = other !== tab;
    }
  }
});

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});

setInterval(tickAges, 5000);
pollParts();
recover();
