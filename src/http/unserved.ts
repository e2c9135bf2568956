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

/** Ways to write a path that base URLs of other servers, and mistakes, lead to. Azure's has the name of a deployment. */
const BEFORE_PATH = /^(?:\/(?:v1|api|openai(?:\/deployments\/[^/]+)?))*(?=\/)/i;

/** The path of an endpoint that a client means by another one; undefined if there is none. */
export function servedPath(path: string, endpoints: readonly { path: string }[]): string | undefined {
  const meant = path.replace(BEFORE_PATH, "/v1");
  const parts = meant.split("/");
  const isOf = (endpoint: string) => {
    const named = endpoint.split("/");
    return named.length === parts.length && named.every((part, at) => part.startsWith(":") || part === parts[at]);
  };
  return meant !== path && endpoints.some((endpoint) => isOf(endpoint.path)) ? meant : undefined;
}
