/**
 * The settings of each client for this gateway: complete files that run as they are. All clients read the key from the
 * variable OPENAI_API_KEY.
 */

export interface ConnectFile {
  /** of the file, or its path from the user's home (`~/…`) */
  name: string;
  /** as the highlighter names it */
  language: string;
  text: string;
}

export interface ConnectSample {
  /** stays the same over versions */
  id: string;
  /** the client's name, for people */
  label: string;
  /** the command that installs the client; empty if nothing is to be installed */
  install: string;
  files: ConnectFile[];
  /** the command that runs the file, in its folder */
  run: string;
}

/**
 * The settings of each client.
 * @param target `baseUrl` with `/v1`; `model` as `GET /v1/models` names it
 */
export function connectSamples({ baseUrl, model }: { baseUrl: string; model: string }): ConnectSample[] {
  const url = JSON.stringify(baseUrl);
  const name = JSON.stringify(model);
  return [
    {
      id: "curl",
      label: "curl",
      install: "",
      files: [
        {
          name: "hello.sh",
          language: "bash",
          text: `curl ${shellWord(`${baseUrl}/responses`)} \\
  -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H 'Content-Type: application/json' \\
  -d ${shellWord(`{"model": ${name}, "input": "Hello!"}`)}
`,
        },
      ],
      run: "sh hello.sh",
    },
    python("openai-python", "OpenAI SDK, Python", "openai", [
      "from openai import OpenAI",
      "",
      `client = OpenAI(base_url=${url})  # reads OPENAI_API_KEY`,
      "",
      `response = client.responses.create(model=${name}, input="Hello!")`,
      "print(response.output_text)",
    ]),
    typescript("openai-node", "OpenAI SDK, TypeScript", "openai", [
      'import OpenAI from "openai";',
      "",
      `const client = new OpenAI({ baseURL: ${url} }); // reads OPENAI_API_KEY`,
      "",
      `const response = await client.responses.create({ model: ${name}, input: "Hello!" });`,
      "console.log(response.output_text);",
    ]),
    {
      id: "codex",
      label: "Codex CLI",
      install: "npm install -g @openai/codex",
      files: [
        {
          name: "~/.codex/config.toml",
          language: "toml",
          text: `model = ${name}
model_provider = "edge"

[model_providers.edge]
name = "edge"
base_url = ${url}
wire_api = "responses"
supports_websockets = true  # one socket instead of a request for each step

[model_providers.edge.auth]  # a command that prints the key
command = "printenv"
args = ["OPENAI_API_KEY"]
`,
        },
      ],
      run: "codex",
    },
    // The model is an object: the Agents SDKs read the part of a name before "/" as the name of a provider.
    python("agents-python", "OpenAI Agents SDK, Python", "openai-agents", [
      "from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled",
      "from openai import AsyncOpenAI",
      "",
      "set_tracing_disabled(True)  # else it sends traces to OpenAI",
      `client = AsyncOpenAI(base_url=${url})  # reads OPENAI_API_KEY`,
      "",
      `agent = Agent(name="Assistant", model=OpenAIResponsesModel(${name}, client))`,
      'print(Runner.run_sync(agent, "Hello!").final_output)',
    ]),
    typescript("agents-node", "OpenAI Agents SDK, TypeScript", "@openai/agents openai zod", [
      'import { Agent, OpenAIResponsesModel, run, setTracingDisabled } from "@openai/agents";',
      'import OpenAI from "openai";',
      "",
      "setTracingDisabled(true); // else it sends traces to OpenAI",
      `const client = new OpenAI({ baseURL: ${url} }); // reads OPENAI_API_KEY`,
      "",
      `const agent = new Agent({ name: "Assistant", model: new OpenAIResponsesModel(client, ${name}) });`,
      'console.log((await run(agent, "Hello!")).finalOutput);',
    ]),
    python("langchain-python", "LangChain, Python", "langchain-openai", [
      "from langchain_openai import ChatOpenAI",
      "",
      "# reads OPENAI_API_KEY",
      `llm = ChatOpenAI(model=${name}, base_url=${url}, use_responses_api=True)`,
      "",
      'print(llm.invoke("Hello!").text)',
    ]),
    typescript("langchain-node", "LangChain, TypeScript", "@langchain/openai @langchain/core", [
      'import { ChatOpenAI } from "@langchain/openai";',
      "",
      "// reads OPENAI_API_KEY",
      `const llm = new ChatOpenAI({ model: ${name}, useResponsesApi: true, configuration: { baseURL: ${url} } });`,
      "",
      'console.log((await llm.invoke("Hello!")).text);',
    ]),
    typescript("ai-sdk", "AI SDK", "ai @ai-sdk/openai", [
      'import { createOpenAI } from "@ai-sdk/openai";',
      'import { generateText } from "ai";',
      "",
      `const openai = createOpenAI({ baseURL: ${url} }); // reads OPENAI_API_KEY`,
      "",
      `const { text } = await generateText({ model: openai.responses(${name}), prompt: "Hello!" });`,
      "console.log(text);",
    ]),
  ];
}

function python(id: string, label: string, packages: string, lines: string[]): ConnectSample {
  return {
    ...{ id, label, install: `pip install ${packages}`, run: "python hello.py" },
    files: [{ name: "hello.py", language: "python", text: `${lines.join("\n")}\n` }],
  };
}

/** `.mts`: an ES module, which Node runs, in a folder of any kind. */
function typescript(id: string, label: string, packages: string, lines: string[]): ConnectSample {
  return {
    ...{ id, label, install: `npm install ${packages}`, run: "node hello.mts" },
    files: [{ name: "hello.mts", language: "typescript", text: `${lines.join("\n")}\n` }],
  };
}

export function shellWord(word: string) {
  return `'${word.replaceAll("'", "'\\''")}'`;
}
