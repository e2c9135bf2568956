/** The value of the field whose event it is: the typed text, or the chosen option. @param {Event} event */
export function typedIn(event) {
  return /** @type {HTMLInputElement} */ (event.target).value;
}
