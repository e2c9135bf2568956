"""Makes a tiny model that speaks by script (script_processor.py): make_models.py chat|harmony VOCABULARY FOLDER.

VOCABULARY is tiktoken's o200k_base file. `chat` is a Qwen3 with ChatML, thoughts and tool calls; `harmony` is a gpt-oss.
Both have the vocabulary of gpt-oss, so no tokenizer is needed from anywhere else.

The weights are random, but the layers do nothing, and one thing is known of the logits, which vLLM reports as log
probabilities whatever a logits processor adds: after a colon the model likes the letters A to J, each e times less than the
one before.
"""
import os
import sys

import torch
from tokenizers import AddedToken
from transformers import (
    GptOssConfig,
    GptOssForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.convert_slow_tokenizer import TikTokenConverter

# How o200k splits a text into words.
PATTERN = "|".join(
    [
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ]
)
ORDINARY_TOKENS = 199_998
VOCABULARY_SIZE = 201_088
# Special tokens by id; all others are reserved.
HARMONY = {
    199998: "<|startoftext|>",
    199999: "<|endoftext|>",
    200002: "<|return|>",
    200003: "<|constrain|>",
    200005: "<|channel|>",
    200006: "<|start|>",
    200007: "<|end|>",
    200008: "<|message|>",
    200012: "<|call|>",
    200018: "<|endofprompt|>",
}
CHAT = {201000: "<|im_start|>", 201001: "<|im_end|>"}
# Qwen3 has these as added tokens that are not special: they stay in the text that the parsers read.
CHAT_MARKUP = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]

SIZES = dict(
    vocab_size=VOCABULARY_SIZE,
    hidden_size=64,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=64,
    dtype="bfloat16",
)


def tokenizer(vocabulary: str, specials: dict[int, str], markup: list[str]):
    converter = TikTokenConverter(vocab_file=vocabulary, pattern=PATTERN, extra_special_tokens=None)
    made = converter.converted() if hasattr(converter, "converted") else converter.tokenizer()
    assert made.get_vocab_size() == ORDINARY_TOKENS, made.get_vocab_size()
    names = [
        specials.get(id, f"<|reserved_{id}|>") for id in range(ORDINARY_TOKENS, VOCABULARY_SIZE - len(markup))
    ]
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    made.add_tokens([AddedToken(name, special=False, normalized=False) for name in markup])
    return made


def like_letters(model, tokenizer) -> None:
    """Makes the logits a function of the last token, and those after a colon a list of letters."""
    for name, weight in model.named_parameters():
        if "o_proj" in name or "down_proj" in name:
            weight.data.zero_()
    token = lambda text: tokenizer.encode(text, add_special_tokens=False)[0]
    embeddings = model.get_input_embeddings().weight.data
    # The last norm makes this of the colon: logits are exact.
    hidden = embeddings[token(":")].sign()
    embeddings[token(":")] = hidden / 16
    head = model.get_output_embeddings().weight.data
    for rank, letter in enumerate("ABCDEFGHIJ"):
        for text, best in ((f" {letter}", 20), (letter, 17)):
            head[token(text)] = hidden / hidden.numel() * (best - rank)


def make_chat(vocabulary: str, folder: str) -> None:
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "chatml.jinja"), encoding="utf-8") as file:
        template = file.read()
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(vocabulary, HARMONY | CHAT, CHAT_MARKUP),
        clean_up_tokenization_spaces=False,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=template,
    )
    made.save_pretrained(folder)
    config = Qwen3Config(
        **SIZES, max_position_embeddings=32_768, tie_word_embeddings=True, eos_token_id=201001, bos_token_id=None
    )
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    like_letters(model, made)
    model.generation_config.eos_token_id = [201001, 199999]
    model.generation_config.pad_token_id = 199999
    model.save_pretrained(folder)


def make_harmony(vocabulary: str, folder: str) -> None:
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(vocabulary, HARMONY, []),
        clean_up_tokenization_spaces=False,
        eos_token="<|return|>",
        bos_token="<|startoftext|>",
        pad_token="<|endoftext|>",
        chat_template="{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant",
    )
    made.save_pretrained(folder)
    config = GptOssConfig(
        **SIZES,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=128,
        layer_types=["sliding_attention", "full_attention"],
        max_position_embeddings=131_072,
        tie_word_embeddings=False,
        eos_token_id=200002,
        pad_token_id=199999,
    )
    model = GptOssForCausalLM(config).to(torch.bfloat16)
    like_letters(model, made)
    model.generation_config.eos_token_id = [200002, 199999, 200012]
    model.generation_config.pad_token_id = 199999
    model.save_pretrained(folder)


if __name__ == "__main__":
    engine, vocabulary, folder = sys.argv[1:]
    torch.manual_seed(0)
    {"chat": make_chat, "harmony": make_harmony}[engine](vocabulary, folder)
