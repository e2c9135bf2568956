"""Makes a model for llama.cpp that says what its chat template writes for it: make_model.py TEMPLATE OUT.gguf LAYERS WIDTH WINDOW.

The template (chatml.jinja) puts a script right before the answer, and fills the prompt so that the script begins exactly
DISTANCE tokens before the answer does. The one thing that the model has learned is to say the token that stands DISTANCE back:
each head of its first layer looks there by its rotary position. So parsers, grammars, stops, chunks and errors are the
server's own, a grammar still wins, and an answer that is continued goes on where it was.

Three more things: after the token `<|count|>` it counts, ` n1 n2 …`, each token by the one before it; for `<|letters|>` in a script,
after a colon, it says one of the letters A to J, each e times less likely than the one before; and where a grammar forbids what the
script says, it likes what ends an answer best. LAYERS and WIDTH make it slower: they do nothing else.

A token is a byte, but for the markup of the template, ` word`, and the numbers.
"""
import sys

import gguf
import numpy as np

DISTANCE = 512
COUNT = 3000

template, out = sys.argv[1:3]
layers, width, CONTEXT = (int(number) for number in sys.argv[3:6])

# Tokens by their types in llama.cpp: 1 ordinary, 2 unknown, 3 control, 4 defined by a user (found in any text), 6 a byte.
tokens = [("<unk>", 2), ("<s>", 3), ("<|im_end|>", 3)]
tokens += [(f"<0x{byte:02X}>", 6) for byte in range(256)]
tokens += [(chr(code).replace(" ", "\u2581"), 1) for code in range(32, 127)]
tokens += [("<|im_start|>", 3), ("<|pad|>", 3), ("<|script|>", 3), ("<|count|>", 3), ("<|letters|>", 3), (" word", 4)]
numbers = len(tokens)
tokens += [(f" n{number}", 4) for number in range(1, COUNT + 1)]
ids = {text: index for index, (text, _) in enumerate(tokens)}
END = ids["<|im_end|>"]

# An embedding: one dimension that is the same for all, codes of what can be said by script, codes of the numbers, and a rest
# that makes all of them equally long.
DIMENSIONS, HEADS = 256, 4
HEAD = DIMENSIONS // HEADS
SAME, SCRIPTED, NUMBERS, REST = 0, slice(1, 150), slice(150, 255), 255
random = np.random.default_rng(0)


def codes(count: int, dimensions: slice) -> np.ndarray:
    """Directions that are as good as orthogonal."""
    drawn = random.standard_normal((count, dimensions.stop - dimensions.start))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


embeddings = np.zeros((len(tokens), DIMENSIONS), np.float32)
embeddings[:, SAME] = 0.5
embeddings[:numbers, SCRIPTED] = codes(numbers, SCRIPTED)
embeddings[numbers:, NUMBERS] = codes(COUNT, NUMBERS)
for text in ("<|pad|>", "<|script|>", "<s>", "<unk>"):
    embeddings[ids[text], SCRIPTED] = 0
    embeddings[ids[text], REST] = 1
# The factor by which RMSNorm scales any of them.
SCALE = np.sqrt(DIMENSIONS) / np.linalg.norm(embeddings[0])

# The copied token is four times as loud as the last one.
LOUD = 4.0
logits = np.zeros((len(tokens), DIMENSIONS), np.float32)
logits[:, SCRIPTED] = embeddings[:, SCRIPTED] * 6
logits[numbers, SCRIPTED] = embeddings[ids["<|count|>"], SCRIPTED] * 6
logits[ids["<|count|>"]] = 0
logits[ids["<|letters|>"]] = 0
logits[numbers + 1 :, NUMBERS] = embeddings[numbers:-1, NUMBERS] * 60
liked = {"<|im_end|>": 8, "}": 7, "]": 6.5, '"': 6, "0": 5, "a": 2}
for text, weight in liked.items():
    logits[ids[text], SAME] = weight

# The heads: each pair of a query is the same at all places, each pair of a key is turned so that the two meet at DISTANCE - 1
# places apart. The rotations are llama.cpp's own, divided by factors so that no other distance comes near.
pairs = HEAD // 2
own = 10000.0 ** (-2 * np.arange(pairs) / HEAD)
away = np.arange(-(DISTANCE - 1), CONTEXT)
away = away[away != 0]


def likeness(rates: np.ndarray) -> float:
    """How much the most alike of the other distances is like the right one: 1 is all."""
    return float(np.max(np.cos(np.outer(away, rates)).sum(axis=1)) / pairs)


rates = min((random.uniform(0.02, 3.1, pairs) for _ in range(60)), key=likeness)
STRENGTH = 6.0
query = np.zeros((DIMENSIONS, DIMENSIONS), np.float32)
key = np.zeros((DIMENSIONS, DIMENSIONS), np.float32)
for head in range(HEADS):
    for pair in range(pairs):
        row = head * HEAD + 2 * pair
        angle = rates[pair] * (DISTANCE - 1)
        query[row, SAME] = STRENGTH / (0.5 * SCALE)
        key[row, SAME] = STRENGTH * np.cos(angle) / (0.5 * SCALE)
        key[row + 1, SAME] = STRENGTH * np.sin(angle) / (0.5 * SCALE)
value = np.zeros((DIMENSIONS, DIMENSIONS), np.float32)
value[SCRIPTED, SCRIPTED] = np.eye(SCRIPTED.stop - SCRIPTED.start)

writer = gguf.GGUFWriter(out, "llama")
writer.add_name("scripted")
writer.add_context_length(CONTEXT)
writer.add_embedding_length(DIMENSIONS)
writer.add_block_count(layers)
writer.add_feed_forward_length(width)
writer.add_head_count(HEADS)
writer.add_head_count_kv(HEADS)
writer.add_rope_dimension_count(HEAD)
writer.add_layer_norm_rms_eps(1e-6)
writer.add_vocab_size(len(tokens))
writer.add_file_type(1)
writer.add_tokenizer_model("llama")
writer.add_tokenizer_pre("default")
writer.add_token_list([text for text, _ in tokens])
writer.add_token_scores([-1.0 if kind == 1 else 0.0 for _, kind in tokens])
writer.add_token_types([kind for _, kind in tokens])
writer.add_bos_token_id(1)
writer.add_eos_token_id(END)
writer.add_unk_token_id(0)
writer.add_add_bos_token(False)
writer.add_add_space_prefix(False)
with open(template, encoding="utf-8") as file:
    writer.add_chat_template(file.read())

# The output of the last norm where `<|letters|>` is copied after a colon.
copied = embeddings[ids["<|letters|>"], SCRIPTED]
hidden = embeddings[ids[":"]].copy()
hidden[SCRIPTED] += LOUD * copied
hidden *= np.sqrt(DIMENSIONS) / np.linalg.norm(hidden)
best = 6 * float(copied @ hidden[SCRIPTED])
for rank, letter in enumerate("ABCDEFGHIJ"):
    row = logits[ids[letter]]
    row[SCRIPTED] += copied * (best - rank - float(row @ hidden)) / float(copied @ hidden[SCRIPTED])

nothing = np.zeros((DIMENSIONS, DIMENSIONS), np.float16)
writer.add_tensor("token_embd.weight", embeddings)
writer.add_tensor("output.weight", logits)
writer.add_tensor("output_norm.weight", np.ones(DIMENSIONS, np.float32))
writer.add_tensor("rope_freqs.weight", (own / rates).astype(np.float32))
for layer in range(layers):
    block = f"blk.{layer}."
    for norm in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"{block}{norm}.weight", np.ones(DIMENSIONS, np.float32))
    first = layer == 0
    writer.add_tensor(f"{block}attn_q.weight", query if first else nothing)
    writer.add_tensor(f"{block}attn_k.weight", key if first else nothing)
    writer.add_tensor(f"{block}attn_v.weight", value if first else nothing)
    loud = (np.eye(DIMENSIONS) * LOUD / SCALE).astype(np.float32)
    writer.add_tensor(f"{block}attn_output.weight", loud if first else nothing)
    for projection in ("gate", "up"):
        writer.add_tensor(f"{block}ffn_{projection}.weight", np.zeros((width, DIMENSIONS), np.float16))
    writer.add_tensor(f"{block}ffn_down.weight", np.zeros((DIMENSIONS, width), np.float16))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
print(f"{out}: likeness {likeness(rates):.2f}")
