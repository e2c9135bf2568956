import temml from "temml";

/** Formulas as MathML. A script of its own: it is loaded when there is a formula. */

/** @param {string} tex @param {boolean} displayMode @returns {Element} */
export function formulaElement(tex, displayMode) {
  const element = document.createElement("span");
  // A formula that is no TeX is shown as it is written, in another colour. Nothing is trusted: no link, class or style of the formula's.
  temml.render(tex, element, { displayMode, throwOnError: false, trust: false, maxExpand: 200, maxSize: [10, 50] });
  // Labels would name elements of the page.
  for (const each of element.querySelectorAll("[id], [href]")) {
    each.removeAttribute("id");
    each.removeAttribute("href");
  }
  return element;
}
