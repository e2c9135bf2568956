/** Says something to who listens to the page rather than look at it, when they are not being told something else. */

const MAX_LENGTH = 1_000;

/** @param {string} text */
export function announce(text) {
  const region = document.getElementById("announcements");
  if (region) region.textContent = text.length > MAX_LENGTH ? `${text.slice(0, MAX_LENGTH)}…` : text;
}
