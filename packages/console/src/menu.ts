/** An open menu closes with the next click beside it. */
export function closeOutside({ currentTarget }: Event) {
  const menu = currentTarget as HTMLDetailsElement;
  if (!menu.open) return;
  const close = ({ target }: Event) => {
    if (menu.contains(target as Node)) return;
    menu.open = false;
    removeEventListener("pointerdown", close);
  };
  addEventListener("pointerdown", close);
}
