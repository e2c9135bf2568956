import temml from "temml";

/** Formulas as MathML. This is a separate script: it is loaded when there is a formula. */

export function formulaElement(tex: string, displayMode: boolean): Element {
  const element = document.createElement("span");
  // A formula that is not valid TeX is shown as it is written, in another colour. `trust` is off: a formula adds no
  // links, classes or styles.
  temml.render(tex, element, { displayMode, throwOnError: false, trust: false, maxExpand: 200, maxSize: [10, 50] });
  // A label would set the id of an element of the page.
  for (const each of element.querySelectorAll("[id], [href]")) {
    each.removeAttribute("id");
    each.removeAttribute("href");
  }
  return element;
}
