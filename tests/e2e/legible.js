// What a page lacks for those who hear it (names of controls and pictures), and for those who see little (contrast by WCAG 2).
() => {
  const named = it => (it.labels && it.labels.length) || it.textContent.trim() || it.getAttribute("aria-label") !== null
    || it.getAttribute("alt") !== null || it.closest("[aria-hidden=true]");
  const unnamed = [...document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a, svg, img, progress")]
    .filter(it => !named(it));

  const pen = Object.assign(document.createElement("canvas"), {width: 1, height: 1}).getContext("2d", {willReadFrequently: true});
  const rgb = colour => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const linear = x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = it => {
    for (; it; it = it.parentElement) {
      const found = rgb(getComputedStyle(it).backgroundColor);
      if (found[3] > 250) return found;
    }
    return [255, 255, 255, 255];
  };
  const contrast = it => {
    const [a, b] = [light(rgb(getComputedStyle(it).color)), light(behind(it))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  const large = style => parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 600);
  const faint = [...document.querySelectorAll("body *")]
    .filter(it => !it.closest("svg, .hidden, .skip, option") && it.checkVisibility())
    .filter(it => [...it.childNodes].some(each => each.nodeType === Node.TEXT_NODE && each.textContent.trim()))
    .filter(it => contrast(it) < (large(getComputedStyle(it)) ? 3 : 4.5));
  const told = list => list.map(it => it.outerHTML.slice(0, 120));
  return {unnamed: told(unnamed), faint: told(faint)};
}
