import { findInstallation, INSTALL } from "./llamacpp-installation.ts";

/** Says, before anything runs, what the facts are checked against. */
export default function announce(): void {
  const installation = findInstallation();
  if (installation) console.log(`Starting llama.cpp with ${installation.server ?? installation.python}.`);
  else console.log(`Skipped: no llama.cpp here. ${INSTALL}`);
}
