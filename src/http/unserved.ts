/** OpenAI's APIs that this server does not have: a client that asks for one is told so by its name. */

/** Their names, by the beginnings of their paths below `/v1/`. The longest that matches counts. */
const UNSERVED: Readonly<Record<string, string>> = {
  agents: "Agents",
  assistants: "Assistants",
  "audio/speech": "Speech",
  "audio/voice_consents": "Voices",
  "audio/voices": "Voices",
  chatkit: "ChatKit",
  content_provenance_checks: "Content Provenance",
  evals: "Evals",
  "fine-tunes": "Fine-tuning",
  fine_tuning: "Fine-tuning",
  "images/variations": "Image Variations",
  live: "Live",
  organization: "Administration",
  prompts: "Prompts",
  realtime: "Realtime",
  safety: "Safety",
  skills: "Skills",
  threads: "Assistants",
  vaults: "Vaults",
  videos: "Videos",
};

/** The name of the API to which a path belongs that no endpoint has; undefined if it is none of OpenAI's. */
export function unservedApi(path: string): string | undefined {
  const [, root, ...parts] = path.split("/");
  if (root !== "v1") return undefined;
  for (let length = Math.min(2, parts.length); length > 0; length -= 1) {
    const beginning = parts.slice(0, length).join("/");
    if (Object.hasOwn(UNSERVED, beginning)) return UNSERVED[beginning];
  }
  return undefined;
}
