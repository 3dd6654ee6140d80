"use strict";
// Asks for the page anew every few seconds and takes over what has changed. Whatever has not changed stays the same
// element, so scroll position, focus, selected text and what was opened are kept.
(() => {
  const main = document.querySelector("main");
  const outage = document.getElementById("outage");
  let timer = 0;
  let asking = false;
  let asked = Date.now(); // when what is shown was asked for; unlike performance.now(), it goes on in a sleep

  const same = (old, fresh) => old.nodeName === fresh.nodeName && old.id === fresh.id;

  function attributes(old, fresh) {
    for (const { name } of [...old.attributes])
      if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes)
      if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }

  function removed(node) {
    const next = node.nextSibling;
    node.remove();
    return next;
  }

  function move(parent, node, at) {
    const focused = document.activeElement;
    parent.insertBefore(node, at);
    if (node.contains(focused)) focused.focus({ preventScroll: true });
  }

  function morph(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    attributes(old, fresh);
    const wanted = new Set([...fresh.children].map((child) => child.id).filter(Boolean));
    let at = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      const known = child.id ? [...old.children].find((other) => same(other, child)) : at && same(at, child) && at;
      if (!known) {
        old.insertBefore(document.importNode(child, true), at);
        continue;
      }
      while (known !== at && !wanted.has(at.id)) at = removed(at);
      if (known !== at) move(old, known, at);
      morph(known, child);
      at = known.nextSibling;
    }
    while (at) at = removed(at);
  }

  async function ask() {
    const answer = await fetch(location.origin + location.pathname, {
      cache: "no-store",
      signal: AbortSignal.timeout(8000),
    });
    if (!answer.ok) throw new Error(`answer ${answer.status}`);
    const text = await answer.text();
    const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("main");
    const known = fresh?.dataset.version && fresh.dataset.seconds > 0 && fresh.querySelector(".as-of time");
    if (!known || !fresh.querySelector("#targets") || !text.includes("</html>"))
      throw new Error("an answer that is not this page, or not the whole of it");
    return fresh;
  }

  function tell(words) {
    const since = main.querySelector(".as-of time")?.textContent ?? "this page was opened";
    const told = `${words(since)} The numbers below are old.`;
    if (outage.textContent !== told) outage.textContent = told; // else it would be read aloud every time
    outage.hidden = false;
    main.classList.add("old");
  }

  // After a while out of sight or a sleep of the computer, and while an answer is late, nothing else says so.
  function check() {
    const late = Math.abs(Date.now() - asked) > 2000 * main.dataset.seconds;
    if (late && !main.classList.contains("old")) tell((since) => `There is no answer since ${since} yet.`);
  }

  function show(fresh, moment) {
    if (fresh.dataset.version !== main.dataset.version) location.reload();
    morph(main, fresh);
    outage.hidden = true;
    asked = moment;
    check();
  }

  async function refresh() {
    clearTimeout(timer);
    check();
    if (asking) return;
    asking = true;
    const moment = Date.now();
    try {
      show(await ask(), moment);
    } catch (error) {
      const why = error.message.startsWith("an") ? ` (${error.message})` : "";
      tell((since) => `The exporter gives no answer since ${since}${why}.`);
    } finally {
      asking = false;
      if (!document.hidden) timer = setTimeout(refresh, 1000 * main.dataset.seconds);
    }
  }

  document.documentElement.classList.add("scripted");
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
  timer = setTimeout(refresh, 1000 * main.dataset.seconds);
  setInterval(check, 1000);
})();
