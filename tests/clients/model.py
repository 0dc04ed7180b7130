"""A copy of stories260K that can chat: the model has no chat template of its own."""

import struct
from pathlib import Path

# Messages one below the other: the model knows stories, not roles.
TEMPLATE = r"{% for message in messages %}{{ message['content'] }}{% if not loop.last %}{{ '\n' }}{% endif %}{% endfor %}"

ALIGNMENT = 32
STRING = 8


def write(source: Path, target: Path) -> None:
    """Copies a GGUF file, with one more key in its header: `tokenizer.chat_template`.

    The new key goes before all others. It is made as long as a multiple of the alignment, so that the tensors behind it
    stay aligned.
    """
    data = source.read_bytes()
    magic, version, tensors, keys = struct.unpack_from("<4sIQQ", data)
    assert (magic, version) == (b"GGUF", 3), f"{source} is no GGUF file of version 3"
    head = struct.pack("<4sIQQ", magic, version, tensors, keys + 1)
    name = b"tokenizer.chat_template"
    template = TEMPLATE.encode()
    fixed = 8 + len(name) + 4 + 8 + len(template) + len("{##}")
    template += b"{#" + b" " * (-fixed % ALIGNMENT) + b"#}"
    key = struct.pack("<Q", len(name)) + name + struct.pack("<IQ", STRING, len(template)) + template
    target.write_bytes(head + key + data[len(head) :])
