"""Writes the corpus: `python dev/quality/corpus/make.py`. README.md beside it says what it needs."""
from __future__ import annotations

import collections
from pathlib import Path

import damage
import encodings_of_texts
import forms
import layouts
import mail_and_books
import office
import producers
import scripts
from case import CASES, write_archive

TARGET = Path(__file__).parents[3] / "packages/file-text/test/corpus.bin"

for module in (producers, scripts, layouts, forms, damage, encodings_of_texts, office, mail_and_books):
    module.made()
write_archive(str(TARGET))
counts = collections.Counter(each.group for each in CASES)
print(f"{len(CASES)} cases, {TARGET.stat().st_size} bytes:", dict(counts))
