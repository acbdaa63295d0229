// Search where the pages are opened from a disk: a browser lets no page fetch a file there, so the theme's search finds nothing.
// The same index is a script beside it (docs/commands.py writes it), and this looks through it. Over HTTP it does nothing.
(() => {
  if (location.protocol !== "file:") return
  const base = JSON.parse(document.getElementById("__config").textContent).base
  const input = document.querySelector(".md-search__input")
  const meta = document.querySelector(".md-search-result__meta")
  const list = document.querySelector(".md-search-result__list")
  const open = document.getElementById("__search")
  if (!input || !meta || !list) return
  for (const each of document.querySelectorAll("[data-md-component=search], label[for=__search]")) each.hidden = false // the theme hid it

  const load = () => {
    if (window.__search_documents || document.getElementById("file-search-index")) return
    const script = document.createElement("script")
    script.id = "file-search-index"
    script.src = base + "/search/documents.js"
    script.onload = show
    document.head.append(script)
  }
  const plain = html => new DOMParser().parseFromString(html, "text/html").body.textContent
  const around = (text, word) => {
    const place = Math.max(0, text.toLowerCase().indexOf(word) - 60)
    return (place ? "… " : "") + text.slice(place, place + 180) + (place + 180 < text.length ? " …" : "")
  }
  const found = words => {
    const scored = []
    for (const each of window.__search_documents) {
      const title = each.title.toLowerCase(), text = each.text.toLowerCase()
      if (!words.every(word => title.includes(word) || text.includes(word))) continue
      const score = words.reduce((sum, word) => sum + (title.includes(word) ? 10 : 0) + Math.min(text.split(word).length - 1, 5), 0)
      scored.push([score + (each.location.includes("#") ? 0 : 3), each])
    }
    return scored.sort((one, other) => other[0] - one[0])
  }
  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean)
    list.replaceChildren()
    if (!window.__search_documents || !words.length) { meta.textContent = "Type to start searching"; return }
    const hits = found(words)
    meta.textContent = hits.length === 1 ? "1 matching section" : hits.length + " matching sections"
    for (const [, each] of hits.slice(0, 30)) {
      const item = document.createElement("li"), link = document.createElement("a"), box = document.createElement("article")
      const title = document.createElement("h2"), text = document.createElement("p")
      item.className = "md-search-result__item"; link.className = "md-search-result__link"
      box.className = "md-search-result__article md-typeset"
      link.href = base + "/" + each.location
      title.textContent = plain(each.title); text.textContent = around(plain(each.text), words[0])
      box.append(title, text); link.append(box); item.append(link); list.append(item)
    }
  }
  input.addEventListener("focus", () => { open.checked = true; load(); show() })
  input.addEventListener("input", show)
  input.form?.addEventListener("submit", event => event.preventDefault())
})()
