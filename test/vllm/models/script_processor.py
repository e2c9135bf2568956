"""A logits processor for vLLM that makes a random model say what a test wants.

The last user text says what:

    SCRIPT[[...]]   exactly that, with ‹ › for < >, markup and end token included
    WORDS=n         a thought, then `w0 w1 ... w(n-1)`
    DELAY=ms        each step of the batch takes that much longer
    otherwise       a thought, then `You said: <text>`; after tool results `The tool returned: <the last one>`

A guard finds what `<verdict ...>` in its question's last message names, `safe` or a hazard. About a text between <content> and
</content> it answers JSON; about any other, if that is an answer or has a `<verdict ...>`, as Llama Guard does.

It adds a bias and forbids nothing: a grammar still wins, and parsers, stop rules, chunks and errors are vLLM's own. Where the
grammar forbids what comes next in the script, the script goes on at the next token that is allowed. A prompt that ends within
an answer is continued where the script has just that beginning.
"""
import re
import time

from transformers import AutoTokenizer
from vllm.v1.sample.logits_processor import LogitsProcessor

SCRIPTED = 1000.0
# A model that has lost its script ends what it has begun.
ENDING, CLOSING = 100.0, 30.0
# A grammar may forbid a gap or a word of the script, but not half of it.
SKIPPED = 8

FORBIDDEN = float("-inf")


def chat_prompt(text: str) -> tuple[str, str | None, str]:
    """The last user text, the last tool result after it if there is one, and how the answer begins already."""
    users = re.findall(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", text, re.S)
    spoken = [part for part in users if not part.startswith("<tool_response>")]
    results = []
    if users and users[-1].startswith("<tool_response>"):
        results = re.findall(r"<tool_response>\n(.*?)\n</tool_response>", users[-1], re.S)
    _, mark, begun = text.rpartition("<|im_start|>assistant\n")
    return spoken[-1] if spoken else text, results[-1] if results else None, begun if mark else ""


def harmony_prompt(text: str) -> tuple[str, str | None, str]:
    """The same of a prompt in Harmony."""
    messages = text.split("<|start|>")[1:]
    said = [index for index, message in enumerate(messages) if message.startswith("user")]
    last = said[-1] if said else 0
    content = lambda message: message.partition("<|message|>")[2].removesuffix("<|end|>")
    # An answer may be cut off after the token that begins its next message.
    results = [content(m) for m in messages[last + 1 :] if m and not re.match("assistant|system|developer|user", m)]
    # The model's own messages since somebody else spoke.
    own = len(messages)
    while own > 0 and (messages[own - 1] == "" or messages[own - 1].startswith("assistant")):
        own -= 1
    begun = "<|start|>".join(messages[own:]).removeprefix("assistant")
    return content(messages[last]) if messages else text, results[-1] if results else None, begun


def verdict(text: str, user: str) -> str | None:
    """What a guard says about a prompt's last message; None where the prompt is no question to a guard."""
    messages = re.findall(r"<\|im_start\|>(user|assistant)\n(.*?)<\|im_end\|>", text, re.S)
    role, judged = messages[-1] if messages else ("user", user)
    given = re.search(r"<verdict (.*?)>", judged, re.S)
    found = given[1] if given else "safe"
    if "<content>" in user:
        return '{"violation": 0}' if found == "safe" else f'{{"violation": 1, "categories": {{"{found}": 0.8}}}}'
    if not given and (role == "user" or judged.endswith("</tool_call>")):
        return None
    return found if found == "safe" else f"unsafe\n{found}"


class ScriptProcessor(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.tokenizer = AutoTokenizer.from_pretrained(vllm_config.model_config.model)
        self.harmony = vllm_config.model_config.hf_config.model_type == "gpt_oss"
        self.requests: dict[int, Speaker] = {}
        first = lambda text: self.tokenizer.encode(text, add_special_tokens=False)[0]
        self.closing = [first(text) for text in ['"', "}", "]", '"}', '"]']]
        if self.harmony:
            self.closing.append(first("<|end|>"))
        self.ending = [first(text) for text in (["<|return|>", "<|call|>"] if self.harmony else ["<|im_end|>"])]

    def is_argmax_invariant(self):
        return False

    def script(self, prompt_ids) -> tuple[str, float]:
        """What is to be said after a prompt, and the milliseconds that each step takes."""
        text = self.tokenizer.decode(prompt_ids, skip_special_tokens=False) if prompt_ids else ""
        user, result, begun = harmony_prompt(text) if self.harmony else chat_prompt(text)
        written = re.search(r"SCRIPT\[\[(.*?)\]\]", user, re.S)
        words = re.search(r"WORDS=(\d+)", user)
        delay = re.search(r"DELAY=(\d+)", user)
        judged = verdict(text, user)
        if written and result is None and judged is None:
            script = written[1].replace("‹", "<").replace("›", ">")
        else:
            answer = f"You said: {user}"
            if judged is not None:
                answer = judged
            elif result is not None:
                answer = f"The tool returned: {result}"
            elif words:
                answer = " ".join(f"w{index}" for index in range(int(words[1])))
            if self.harmony:
                thought = "<|channel|>analysis<|message|>The user said something.<|end|>"
                script = f"{thought}<|start|>assistant<|channel|>final<|message|>{answer}<|return|>"
            else:
                script = f"<think>\nThe user said something.\n</think>\n\n{answer}<|im_end|>"
        return self.rest(script, begun), float(delay[1]) if delay else 0.0

    def rest(self, script: str, begun: str) -> str:
        """The script after what the prompt has of it already."""
        if script.startswith(begun):
            return script[len(begun) :]
        if self.harmony:
            # A continued answer need not have its thoughts in the prompt.
            final = "<|channel|>final<|message|>"
            head, mark, answer = script.partition(final)
            if mark and (mark + answer).startswith(begun):
                return (mark + answer)[len(begun) :]
            return " (continued)<|return|>"
        # Templates differ in the thoughts that they keep: what counts is the answer after them.
        said = begun.rpartition("</think>")[2].lstrip("\n")
        answer = script.rpartition("</think>")[2].lstrip("\n")
        return answer[len(said) :] if answer.startswith(said) else " (continued)<|im_end|>"

    def update_state(self, batch_update):
        if batch_update is None:
            return
        for index in batch_update.removed:
            self.requests.pop(index, None)
        for index, _, prompt, output in batch_update.added:
            script, delay = self.script(prompt)
            self.requests[index] = Speaker(self.tokenizer.encode(script, add_special_tokens=False), delay / 1000, output)
        for source, target, direction in batch_update.moved:
            moved, other = self.requests.pop(source, None), self.requests.pop(target, None)
            if moved is not None:
                self.requests[target] = moved
            if direction.name == "SWAP" and other is not None:
                self.requests[source] = other

    def apply(self, logits):
        wait = 0.0
        for index, speaker in self.requests.items():
            if index >= logits.shape[0]:
                continue
            wait = max(wait, speaker.delay)
            token = speaker.next_token(logits[index])
            if token is not None:
                logits[index, token] += SCRIPTED
            else:
                logits[index, self.closing] += CLOSING
                for end in self.ending:
                    logits[index, end] += ENDING
        if wait:
            time.sleep(wait)
        return logits


class Speaker:
    """Where one request is in its script."""

    def __init__(self, script: list[int], delay: float, output: list[int]):
        self.script, self.delay = script, delay
        # vLLM's own list, which grows; -1 stands for a token that it has not looked up yet.
        self.output = output
        # The place in the script of every token so far. A step may be asked for twice.
        # A request that gave way to others comes back with what it had said.
        self.places = [place for place, token in enumerate(output) if script[place : place + 1] == [token]]

    def next_token(self, logits) -> int | None:
        """The next scripted token that may be sampled now; None when there is none, or the script was left."""
        step = len(self.output)
        if step > len(self.places):
            return None
        del self.places[step:]
        if step > 0 and self.output[-1] not in (-1, self.script[self.places[-1]]):
            return None
        start = self.places[-1] + 1 if step > 0 else 0
        for place in range(start, min(start + 1 + SKIPPED, len(self.script))):
            if logits[self.script[place]] != FORBIDDEN:
                self.places.append(place)
                return self.script[place]
        return None
