"""Copies the vocabulary out of a GGUF model into a GGUF file without tensors.

    pip install gguf
    python extract_vocabulary.py model.gguf vocabulary.gguf
"""
import sys

from gguf import GGUFReader, GGUFValueType, GGUFWriter

source, target = sys.argv[1:]
reader = GGUFReader(source)
writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
for key, field in reader.fields.items():
    if not key.startswith(("tokenizer.", "general.name", "general.license")):
        continue
    value, kind = field.contents(), field.types[0]
    if kind == GGUFValueType.ARRAY:
        writer.add_key_value(key, value, kind, sub_type=field.types[-1])
    else:
        writer.add_key_value(key, value, kind)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.close()
