import type { Json } from "./json.ts";

/**
 * The conversations that the simulator knows: the examples of the console, and questions like them. Each has a thought,
 * some have a call, and the answers have every element that the console can show.
 */

/** The model's next step in a conversation that it knows. Arguments that it does not know are filled from the schema. */
export interface KnownStep {
  thought: string;
  /** Exactly one of both. */
  call?: { name: string; arguments?: Json };
  answer?: string;
}

interface Result {
  name: string;
  output: string;
}

/**
 * The next step after a user's text and the results of the calls since. `tools`: the names of the functions that the
 * request offers. `undefined` if the simulator does not know the text, or its tool is not offered.
 */
export function knownStep(text: string, tools: readonly string[], results: readonly Result[]): KnownStep | undefined {
  if (text === TOUR_QUESTION) return results.length === 0 ? TOUR : undefined;
  const city = WEATHER.exec(text)?.[1];
  if (city !== undefined && tools.includes("get_weather")) return weather(city, results);
  const topic = FILES.exec(text)?.[1];
  return topic !== undefined && tools.includes("file_search") ? files(topic, results) : undefined;
}

/** An answer under a schema that the simulator knows, as JSON. */
export function knownJson(text: string): string | undefined {
  return text === "Which is the largest owl?" ? JSON.stringify({ answer: "Blakiston's fish owl" }) : undefined;
}

const TOUR_QUESTION = "Show me what an answer can look like.";

const TOUR: KnownStep = {
  thought:
    "The user wants to see an answer. I am a simulator: I repeat what I am told, and know only a few answers by heart. A heading, a list, a table, code and a formula will do.",
  answer: `### This is the simulator

It is no model: it **repeats what you say**, so that clients can be tried without a GPU. Set \`VLLM_BASE_URL\` to your own vLLM, and these answers are a model's.

1. Everything on this page goes through the Responses API, as your program would use it.
2. *The same as code* is this request in another language.
3. A background answer goes on when you reload the page. Try it.

| Ask for | and the simulator |
|:--|:--|
| \`What is the weather in Paris?\`, with the function \`get_weather\` | calls it |
| \`What do my files say about owls?\`, with a vector store | searches it, and cites |
| structured output | fills the schema |
| the model \`simulator-reasoning\` | thinks first |

\`\`\`python
from openai import OpenAI

client = OpenAI(base_url="http://localhost:8787/v1", api_key="any")
stream = client.responses.create(model="simulator", input="Hello!", stream=True)
for event in stream:
    print(event.type)
\`\`\`

The chance that $n$ answers in a row are whole, each with probability $p$, is

$$
P_n = p^n = e^{\\,n \\ln p}
$$`,
};

const WEATHER = /^What is the weather in (\p{Lu}[\p{L}'’ -]*)\?(?: \w+ get_weather\.)?$/u;

function weather(city: string, results: readonly Result[]): KnownStep {
  const output = results.at(-1)?.output;
  if (output === undefined) {
    return {
      thought: `The user asks for the weather in ${city}. I cannot know it, but the function get_weather can: I call it with the name of the city.`,
      call: { name: "get_weather" },
    };
  }
  return {
    thought: `get_weather has answered. I say it in a table, and show the output that I was given.`,
    answer: `Here is the weather in **${city}**:

| City | Weather |
|:--|:--|
| ${city} | ${inCell(output)} |

It is the output of \`get_weather\`, which your program gave back:

\`\`\`json
${JSON.stringify({ type: "function_call_output", output: shortened(output) }, null, 2)}
\`\`\``,
  };
}

const FILES = /^What do (?:my|the|our) files say about (.+?)\?/;

/** The head of a passage of a file, as `file_search` gives it to a model, and the passage until the next head. */
const PASSAGE = /^(【\d+:\d+†source】) \S+ (.*)\n([\s\S]*?)(?=\n\n【\d+:\d+†source】|$(?![\s\S]))/gm;

const MOST_PASSAGES = 5;

function files(topic: string, results: readonly Result[]): KnownStep {
  const output = results.at(-1)?.output;
  if (output === undefined) {
    return {
      thought: `The user asks about ${topic}. The files may have it: I search them before I answer.`,
      call: { name: "file_search", arguments: { queries: [topic] } },
    };
  }
  const passages = [...output.matchAll(PASSAGE)].slice(0, MOST_PASSAGES);
  const rows = passages.map(
    ([, mark = "", file = "", passage = ""]) => `| ${inCell(file)} | ${inCell(lineAbout(topic, passage))} ${mark} |`,
  );
  return {
    thought: `The search has ${passages.length === 0 ? "found nothing" : "found passages"}. I say so${passages.length === 0 ? "" : ", and cite each of them"}.`,
    answer:
      rows.length === 0
        ? `Your files say nothing about **${topic}**.`
        : `Your files say this about **${topic}**:\n\n| File | Passage |\n|:--|:--|\n${rows.join("\n")}`,
  };
}

/** The line of a passage that has the topic, or else its first one, without marks of markdown. */
function lineAbout(topic: string, passage: string): string {
  const lines = passage.split("\n").map((line) => line.replaceAll(/[#>*|`]+/g, " ").trim());
  const about = lines.find((line) => line.toLowerCase().includes(topic.toLowerCase()));
  return about ?? lines.find((line) => line.length > 0) ?? "";
}

/** The longest text that is repeated. Characters. */
const MOST = 200;

function shortened(text: string): string {
  return text.length > MOST ? `${text.slice(0, MOST)}…` : text;
}

/** A text as a cell of a table in markdown. */
function inCell(text: string): string {
  return shortened(text.trim().replaceAll(/\s+/g, " ")).replaceAll("|", "\\|");
}
