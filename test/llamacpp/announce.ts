import { findInstallation, INSTALL } from "./llamacpp-installation.ts";

/** Prints the tested model server before any test runs. */
export default function announce(): void {
  const installation = findInstallation();
  if (installation) console.log(`Starting llama.cpp with ${installation.server ?? installation.python}.`);
  else console.log(`Skipped: no llama.cpp here. ${INSTALL}`);
}
