import { type Said, say } from "./generation.ts";

/**
 * The simulator's answer to the console's first example: reasoning, and an answer with every element that the console
 * can show.
 */

/** The question, equal to the console's. */
export const TOUR_QUESTION = "Show me what an answer can look like.";

const THOUGHT =
  "The user wants to see an answer. I am a simulator: I repeat what I am told, and this text is the only one that I know by heart. A heading, a list, a table, code and a formula will do.";

const ANSWER = `### This is the simulator

It is no model: it **repeats what you say**, so that clients can be tried without a GPU. Set \`VLLM_BASE_URL\` to your own vLLM, and these answers are a model's.

1. Everything on this page goes through the Responses API, as your program would use it.
2. *The same as code*, below, is this request in another language.
3. A background answer goes on when you reload the page. Try it.

| Ask for | and the simulator |
|:--|:--|
| \`get_weather\`, as a function | calls it |
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
$$`;

/** The tour, without reasoning if the request disables it. */
export function tour(thinks: boolean): Said[] {
  return [...(thinks ? [say("reasoning", THOUGHT)] : []), say("content", ANSWER)];
}
