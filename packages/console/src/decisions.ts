import { html, nothing, render } from "lit-html";
import type { Decision } from "../api-types.d.ts";
import { announce } from "./announce.ts";
import { callJson } from "./api.ts";
import { Asking } from "./asking.ts";
import { decisionAnswers } from "./decision-answers.ts";
import { type Field, fieldsTemplate, valuesIn } from "./fields.ts";
import { readableJson } from "./format.ts";
import { icon } from "./icons.ts";
import { LongText } from "./long-text.ts";
import { recall, remember, session } from "./session.ts";
import type { View } from "./view.ts";

/** Questions about an input, answered with probabilities: `POST /v1/decisions`, at `#/decisions`. */

type Kind = "predicate" | "choice" | "score";

/** A question in the form. */
interface Draft {
  kind: Kind;
  name?: string;
  instructions?: string;
  /** Where the kind has them. */
  options?: string[];
}

const KINDS: Record<Kind, { label: string; instructions: string; options?: string }> = {
  predicate: { label: "True or false", instructions: "Statement" },
  choice: { label: "One of several", instructions: "Question", options: "Choices, one a line" },
  score: { label: "A level of a scale", instructions: "Question", options: "Levels, one a line, the lowest first" },
};

/** The most questions of a request (`packages/responses-api/src/platform/decisions.ts`). */
const MAX_QUESTIONS = 400;

const EXAMPLE: { input: string; questions: Draft[] } = {
  input: "My parcel has not arrived, and I want my money back.",
  questions: [
    { kind: "predicate", name: "refund", instructions: "The customer asks for a refund." },
    { kind: "choice", name: "team", instructions: "Who answers?", options: ["billing", "shipping", "sales"] },
    {
      kind: "score",
      name: "anger",
      instructions: "How angry is the customer?",
      options: ["calm", "annoyed", "furious"],
    },
  ],
};

/** The fields of a question. Their names begin with its index. */
function questionForm({ kind }: Draft, index: number): Field[] {
  const { instructions, options } = KINDS[kind];
  const kinds = Object.entries(KINDS).map(([value, { label }]) => [value, label] as const);
  return [
    { name: `${index}.kind`, label: "Kind", kind: "choice", options: kinds },
    { name: `${index}.name`, label: "Name (optional)", maxLength: 256 },
    { name: `${index}.instructions`, label: instructions, kind: "long", isRequired: true },
    ...(options ? ([{ name: `${index}.options`, label: options, kind: "lines", isRequired: true }] as Field[]) : []),
  ];
}

/** A server that does not list its models has a field for the name. */
function inputForm(): Field[] {
  const models = (session.models ?? []).map((name) => [name, name] as const);
  return [
    { name: "model", label: "Model", kind: models.length === 0 ? "text" : "choice", options: models, isRequired: true },
    { name: "input", label: "Input", kind: "long", isRequired: true },
  ];
}

export function decisionsView(view: HTMLElement): View {
  let now: { model?: string; input?: string; questions: Draft[] } = recall("decision") ?? { questions: [] };
  if (now.questions.length === 0) now.questions = [{ kind: "predicate" }];
  const asking = new Asking(draw, async () => {
    const body = bodyOf(now.model ?? session.models?.[0] ?? "", now.input ?? "", now.questions);
    const decision: Decision = await callJson("/v1/decisions", { body });
    const shown = `${readableJson(JSON.stringify(body))}\n\n${readableJson(JSON.stringify(decision))}`;
    announce(`${decision.answers.length} answers.`);
    return { body, decision, text: new LongText(shown, { dir: "ltr" }) };
  });

  function set(changed: Partial<typeof now>) {
    now = { ...now, ...changed };
    remember("decision", now);
    draw();
  }

  function typed(event: Event) {
    const fields = [...inputForm(), ...now.questions.flatMap(questionForm)];
    const { model, input, ...given } = valuesIn(fields, new FormData(event.currentTarget as HTMLFormElement));
    set({ model, input, questions: Object.values(given) });
  }

  function add() {
    set({ questions: [...now.questions, { kind: "predicate" }] });
    const first: HTMLElement | null = view.querySelector(`[name="${now.questions.length - 1}.kind"]`);
    first?.scrollIntoView({ block: "nearest" });
    first?.focus();
  }

  function draw() {
    const { input, questions } = now;
    const isEmpty = !input && questions.every(({ instructions }) => !instructions);
    const { decision, body, text } = asking.answer ?? {};
    render(
      html`<div class="stack">
        <h1 class="unseen">Decisions</h1>
        <div class="section-heading buttons spread"><h2>Decisions</h2></div>
        <p class="note">Questions about an input. The model answers each with one token, whose probabilities are the answer. Nothing is stored.</p>
        <div class="columns">
          <form class="card stack" @input=${typed} @submit=${asking.submit}>
            ${fieldsTemplate(inputForm(), now, "decision")} ${questions.map(questionTemplate)}
            <div class="buttons">
              ${asking.button("Ask", "Asking…")}
              <button type="button" ?disabled=${questions.length >= MAX_QUESTIONS} @click=${add}>${icon("new")} Add a question</button>
              ${isEmpty ? html`<button type="button" class="plain" @click=${() => set(EXAMPLE)}>Put in an example</button>` : nothing}
            </div>
          </form>
          <div class="stack">
            ${asking.fault} ${decision && body ? decisionAnswers(decision, body.questions) : nothing}
            ${text ? html`<details class="card"><summary>Request and answer as JSON</summary>${text.element}</details>` : nothing}
          </div>
        </div>
      </div>`,
      view,
    );
  }

  function questionTemplate(question: Draft, index: number) {
    const label = `Remove question ${index + 1}`;
    const remove = () => set({ questions: now.questions.filter((each) => each !== question) });
    return html`<fieldset class="relative line-above pt-3">
      <legend>Question ${index + 1}</legend>
      ${fieldsTemplate(questionForm(question, index), { [index]: question }, "decision")}
      ${
        now.questions.length > 1
          ? html`<button type="button" class="bare absolute end-0 -top-5 bg-surface" title=${label} aria-label=${label} @click=${remove}>${icon("trash")}</button>`
          : nothing
      }
    </fieldset>`;
  }

  // The server has another list of models for another user.
  return { show: draw, signedIn: draw };
}

/** The request. */
function bodyOf(model: string, input: string, questions: readonly Draft[]) {
  return {
    model,
    input,
    questions: questions.map(({ kind, name, instructions = "", options = [] }) => ({
      type: kind,
      ...(name && { name }),
      instructions,
      ...(kind === "choice" && { choices: options.map((value) => ({ value })) }),
      ...(kind === "score" && { levels: options.map((label) => ({ label })) }),
    })),
  };
}
