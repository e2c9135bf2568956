/** The value of the field whose event it is: the typed text, or the chosen option. */
export function typedIn(event: Event) {
  return (event.target as HTMLInputElement).value;
}
