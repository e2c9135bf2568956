import { html, nothing, render } from "lit-html";
import { type ConnectSample, connectSamples } from "./connect-samples.ts";
import { codeBlock } from "./late-views.ts";
import { access, session } from "./session.ts";
import type { View } from "./view.ts";

/** The settings of clients for this server: `#/connect/{client}`. The page never has the key of this tab in its text. */

const SHELL = "export OPENAI_API_KEY='your key'";
const POWERSHELL = "$env:OPENAI_API_KEY = 'your key'";

export function connectView(view: HTMLElement): View {
  let client = "";
  /** The model that the user chose; undefined: the first one. */
  let chosen: string | undefined;
  const baseUrl = `${location.origin}/v1`;

  const model = () => chosen ?? session.models?.[0] ?? "your-model";

  function draw() {
    const samples = connectSamples({ baseUrl, model: model() });
    const sample = samples.find(({ id }) => id === client) ?? samples[0];
    render(
      html`<div class="stack">
        <div>
          <h1>Connect a client</h1>
          <p class="note">Programs that speak OpenAI's Responses API can use this server. Give them its address, a key and the name of a model.</p>
        </div>
        <section class="card stack">
          <div class="columns">
            <div>
              <h2 class="mb-1.5">Base URL</h2>
              ${codeBlock(baseUrl, "Address")}
            </div>
            <div>
              <h2 class="mb-1.5"><label class="inline [font:inherit]" for="connect-model">Model</label></h2>
              ${modelTemplate()}
            </div>
          </div>
          <h2>Key</h2>
          <p>${keyTemplate()}</p>
          <div class="columns">${codeBlock(SHELL, "bash")} ${codeBlock(POWERSHELL, "PowerShell")}</div>
        </section>
        <nav class="sections line-below" aria-label="Clients">
          ${samples.map(({ id, label }) => html`<a href=${`#/connect/${id}`} aria-current=${id === sample?.id ? "page" : nothing}>${label}</a>`)}
        </nav>
        ${sample ? sampleTemplate(sample) : nothing}
      </div>`,
      view,
    );
  }

  function modelTemplate() {
    const { models = [] } = session;
    const change = (event: Event) => {
      chosen = (event.target as HTMLInputElement).value.trim() || undefined;
      draw();
    };
    if (models.length === 0) {
      return html`<input dir="auto" id="connect-model" spellcheck="false" autocomplete="off" placeholder="your-model" @input=${change} />
        <p class="note">The server's models are not known here.</p>`;
    }
    return html`<select id="connect-model" @change=${change}>
      ${models.map((name) => html`<option value=${name} ?selected=${name === model()}>${name}</option>`)}
    </select>`;
  }

  return {
    show({ path: [id = ""] }) {
      client = id;
      draw();
    },
    identified: draw,
  };
}

function keyTemplate() {
  if (access() === "open") {
    return html`This server needs no key. Most clients want one all the same: any text will do. They read it from the variable <code>OPENAI_API_KEY</code>.`;
  }
  return html`All clients below read the key from the variable <code>OPENAI_API_KEY</code>. Put your key there, once for each terminal:`;
}

function sampleTemplate({ label, install, files, run }: ConnectSample) {
  return html`<section class="card stack" aria-label=${label}>
    ${
      install
        ? html`<h2>Install</h2>
            ${codeBlock(install, "bash")}`
        : nothing
    }
    ${files.map(
      ({ name, language, text }) =>
        html`<h2>Save this as <code>${name}</code></h2>
          ${codeBlock(text, language)}`,
    )}
    <h2>Run</h2>
    ${codeBlock(run, "bash")}
  </section>`;
}
