/** Announces a text to users of screen readers, unless an announcement is under way. */

const MAX_LENGTH = 1_000;

export function announce(text: string) {
  const region = document.getElementById("announcements");
  if (region) region.textContent = text.length > MAX_LENGTH ? `${text.slice(0, MAX_LENGTH)}…` : text;
}
