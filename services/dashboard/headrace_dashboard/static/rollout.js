"use strict";
// Shows a sampled token's logprob, probability and policy version under the pointer or the finger.

const tip = document.getElementById("token-tip");
let shown = null;

function line(label, value) {
  const row = document.createElement("div");
  row.textContent = `${label} ${value}`;
  return row;
}

function show(token) {
  shown?.classList.remove("is-on");
  shown = token;
  tip.hidden = !token;
  if (!token) return;
  token.classList.add("is-on");
  const logprob = Number(token.dataset.logprob);
  const text = document.createElement("b");
  text.textContent = JSON.stringify(token.textContent);
  tip.replaceChildren(
    text,
    line("logprob", token.dataset.logprob),
    line("probability", Math.exp(logprob).toPrecision(3)),
    line("version", token.dataset.version),
    line("token id", token.dataset.tokenId),
  );
  const box = token.getClientRects()[0] ?? token.getBoundingClientRect();
  const left = Math.min(Math.max(8, box.left), document.documentElement.clientWidth - tip.offsetWidth - 8);
  const above = box.top - tip.offsetHeight - 6;
  tip.style.left = `${left}px`;
  tip.style.top = `${above > 60 ? above : box.bottom + 6}px`;
}

document.addEventListener("pointerover", (event) => show(event.target.closest?.(".tokens .tok") ?? null));
document.addEventListener("click", (event) => show(event.target.closest(".tokens .tok")));
document.addEventListener("scroll", () => show(null), { passive: true });
