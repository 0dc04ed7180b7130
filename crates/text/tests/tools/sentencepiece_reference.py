"""Token ids of texts under a SentencePiece vocabulary, by the plain quadratic algorithm of llama2.c's `encode`.

Written apart from the product, to judge it:

    pip install gguf
    python sentencepiece_reference.py stories260k-vocab.gguf texts.inp > stories260k_ids.json
"""
import json
import random
import sys

from gguf import GGUFReader


def encode(text, ids, scores):
    tokens = []
    for character in " " + text if text else "":
        piece = character.replace(" ", "\u2581")
        if piece in ids:
            tokens.append(ids[piece])
        else:
            tokens.extend(byte + 3 for byte in character.encode())
    while True:
        best = None
        for i in range(len(tokens) - 1):
            joined = ids.get(names[tokens[i]] + names[tokens[i + 1]])
            if joined is not None and (best is None or scores[joined] > best[0]):
                best = scores[joined], i, joined
        if best is None:
            return tokens
        tokens[best[1] : best[1] + 2] = [best[2]]


reader = GGUFReader(sys.argv[1])
names = reader.fields["tokenizer.ggml.tokens"].contents()
scores = reader.fields["tokenizer.ggml.scores"].contents()
types = reader.fields["tokenizer.ggml.token_type"].contents()
ids = {name: i for i, name in enumerate(names) if types[i] == 1}
texts = open(sys.argv[2], encoding="utf-8").read().split("\n__ggml_vocab_test__\n")
random.seed(1)
words = "once upon a time there was a little girl named Lily she loved to play <s> </s> <0x0A> \u2581x \U0001f999 é".split(" ")
for length in (3, 10, 40, 100):
    texts.append("".join(random.choice(words) + random.choice([" ", "", "  ", "\n", ", "]) for _ in range(length)))
texts.append("a" * 50 + "h" * 33 + "the" * 20)
json.dump([{"text": text, "ids": encode(text, ids, scores)} for text in texts], sys.stdout, ensure_ascii=False, indent=0)
