import { html, nothing, render } from "lit-html";
import { repeat } from "lit-html/directives/repeat.js";
import type { Decision } from "../api-types.d.ts";
import { announce } from "./announce.ts";
import { callJson } from "./api.ts";
import { decisionAnswers } from "./decision-answers.ts";
import { faultNotice, messageWithField } from "./dialogs.ts";
import { typedIn } from "./form-events.ts";
import { readableJson } from "./format.ts";
import { LongText } from "./long-text.ts";
import { recall, remember, session } from "./session.ts";
import type { View } from "./view.ts";

/** Questions about an input, answered with probabilities: `POST /v1/decisions`, at `#/decisions`. */

export type Kind = "predicate" | "choice" | "score";

/** A question in the form */
export interface Draft {
  /** differs from those of the other questions */
  no: number;
  kind: Kind;
  name: string;
  instructions: string;
  /** one a line, where the kind has them */
  options: string;
}

const KINDS: Record<Kind, { label: string; instructions: string; options?: string }> = {
  predicate: { label: "True or false", instructions: "Statement" },
  choice: { label: "One of several", instructions: "Question", options: "Choices, one a line" },
  score: { label: "A level of a scale", instructions: "Question", options: "Levels, one a line, the lowest first" },
};

/** The most questions of a request (`packages/responses-api/src/platform/decisions.ts`). */
const MAX_QUESTIONS = 400;

const EXAMPLE: { input: string; questions: Omit<Draft, "no">[] } = {
  input: "My parcel has not arrived, and I want my money back.",
  questions: [
    { kind: "predicate", name: "refund", instructions: "The customer asks for a refund.", options: "" },
    { kind: "choice", name: "team", instructions: "Who answers?", options: "billing\nshipping\nsales" },
    { kind: "score", name: "anger", instructions: "How angry is the customer?", options: "calm\nannoyed\nfurious" },
  ],
};

export function decisionsView(view: HTMLElement): View {
  let lastNo = 0;
  const draft = recall("decision") ?? { model: "", input: "", questions: [] };
  let questions: Draft[] = (draft.questions.length > 0 ? draft.questions : [emptyQuestion()]).map(numbered);
  let { model, input } = draft;
  let answered: { body: ReturnType<typeof bodyOf>; decision: Decision; text: LongText } | undefined;
  let fault = "";
  let isBusy = false;

  function numbered(question: Omit<Draft, "no">): Draft {
    lastNo += 1;
    return { ...question, no: lastNo };
  }

  function changed() {
    remember("decision", { model, input, questions: questions.map(({ no: _, ...question }) => question) });
    draw();
  }

  function change(question: Draft, fields: Partial<Draft>) {
    Object.assign(question, fields);
    changed();
  }

  async function ask(event: SubmitEvent) {
    event.preventDefault();
    if (isBusy) return;
    const body = bodyOf(modelOf(), input, questions);
    isBusy = true;
    fault = "";
    draw();
    try {
      const decision = await callJson("/v1/decisions", { body });
      const shown = `${readableJson(JSON.stringify(body))}\n\n${readableJson(JSON.stringify(decision))}`;
      answered = { body, decision, text: new LongText(shown, { dir: "ltr" }) };
      announce(`${decision.answers.length} answers.`);
    } catch (error) {
      answered = undefined;
      fault = messageWithField(error);
    }
    isBusy = false;
    draw();
  }

  const modelOf = () => model || session.models?.[0] || "";

  function draw() {
    render(
      html`<div class="stack">
        <h1 class="unseen">Decisions</h1>
        <div class="section-heading"><h2>Decisions</h2></div>
        <p class="note">Questions about an input. The model answers each with one token, whose probabilities are the answer. Nothing is stored.</p>
        <div class="columns">
          ${formTemplate()}
          <div class="stack">
            ${faultNotice(fault)}
            ${answered ? decisionAnswers(answered.decision, answered.body.questions) : nothing}
            ${answered ? html`<details class="card"><summary>Request and answer as JSON</summary>${answered.text.element}</details>` : nothing}
          </div>
        </div>
      </div>`,
      view,
    );
  }

  function formTemplate() {
    const isEmpty = input === "" && questions.every(({ instructions }) => instructions === "");
    return html`<form class="card stack" @submit=${ask}>
      ${modelTemplate()}
      <div>
        <label for="decision-input">Input</label>
        <textarea
          dir="auto"
          id="decision-input"
          rows="3"
          required
          .value=${input}
          @input=${(event: Event) => {
            input = typedIn(event);
            changed();
          }}
        ></textarea>
      </div>
      ${repeat(
        questions,
        ({ no }) => no,
        (question, index) => questionTemplate(question, index),
      )}
      <div class="buttons">
        <button class="primary" type="submit" aria-disabled=${String(isBusy)}>${isBusy ? "Asking…" : "Ask"}</button>
        <button
          type="button"
          ?disabled=${questions.length >= MAX_QUESTIONS}
          @click=${() => {
            questions = [...questions, numbered(emptyQuestion())];
            changed();
            view.querySelector(`#decision-${lastNo}-kind`)?.scrollIntoView({ block: "nearest" });
            (view.querySelector(`#decision-${lastNo}-kind`) as HTMLElement | null)?.focus();
          }}
        >
          Add a question
        </button>
        ${
          isEmpty
            ? html`<button
                type="button"
                class="plain"
                @click=${() => {
                  ({ input } = EXAMPLE);
                  questions = EXAMPLE.questions.map(numbered);
                  changed();
                }}
              >
                Put in an example
              </button>`
            : nothing
        }
      </div>
    </form>`;
  }

  function modelTemplate() {
    const models = session.models ?? [];
    const choose = (event: Event) => {
      model = typedIn(event);
      changed();
    };
    return html`<div>
      <label for="decision-model">Model</label>
      ${
        models.length === 0
          ? html`<input dir="auto" id="decision-model" required spellcheck="false" autocomplete="off" .value=${model} @input=${choose} />`
          : html`<select id="decision-model" @change=${choose}>
              ${models.map((name) => html`<option ?selected=${name === modelOf()}>${name}</option>`)}
            </select>`
      }
    </div>`;
  }

  function questionTemplate(question: Draft, index: number) {
    const { no, kind, name, instructions, options } = question;
    const id = (field: string) => `decision-${no}-${field}`;
    const set = (field: keyof Draft) => (event: Event) => change(question, { [field]: typedIn(event) });
    const words = KINDS[kind];
    return html`<fieldset class="stack decision-question">
      <legend>Question ${index + 1}</legend>
      <div class="fields">
        <div>
          <label for=${id("kind")}>Kind</label>
          <select id=${id("kind")} @change=${set("kind")}>
            ${Object.entries(KINDS).map(([value, { label }]) => html`<option value=${value} ?selected=${value === kind}>${label}</option>`)}
          </select>
        </div>
        <div>
          <label for=${id("name")}>Name (optional)</label>
          <input dir="auto" id=${id("name")} maxlength="256" autocomplete="off" .value=${name} @input=${set("name")} />
        </div>
      </div>
      <div>
        <label for=${id("instructions")}>${words.instructions}</label>
        <textarea dir="auto" id=${id("instructions")} rows="1" required .value=${instructions} @input=${set("instructions")}></textarea>
      </div>
      ${
        words.options === undefined
          ? nothing
          : html`<div>
              <label for=${id("options")}>${words.options}</label>
              <textarea dir="auto" id=${id("options")} rows="3" required .value=${options} @input=${set("options")}></textarea>
            </div>`
      }
      ${
        questions.length > 1
          ? html`<div class="buttons">
              <button
                type="button"
                class="plain"
                aria-label=${`Remove question ${index + 1}`}
                @click=${() => {
                  questions = questions.filter((each) => each !== question);
                  changed();
                }}
              >
                Remove
              </button>
            </div>`
          : nothing
      }
    </fieldset>`;
  }

  return {
    show: draw,
    // The server has another list of models for another user.
    signedIn: draw,
  };
}

function emptyQuestion(): Omit<Draft, "no"> {
  return { kind: "predicate", name: "", instructions: "", options: "" };
}

/** The request. */
function bodyOf(model: string, input: string, questions: readonly Draft[]) {
  return {
    model,
    input,
    questions: questions.map(({ kind, name, instructions, options }) => {
      const lines = options
        .split("\n")
        .map((line) => line.trim())
        .filter((line) => line !== "");
      return {
        type: kind,
        ...(name !== "" && { name }),
        instructions,
        ...(kind === "choice" && { choices: lines.map((value) => ({ value })) }),
        ...(kind === "score" && { levels: lines.map((label) => ({ label })) }),
      };
    }),
  };
}
