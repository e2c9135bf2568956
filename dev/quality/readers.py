"""Reads the files of the corpus with readers of other authors, and writes their texts as JSON: `readers.py ARCHIVE`."""
import importlib.metadata
import io
import json
import logging
import subprocess
import sys
import warnings
import zipfile

import pymupdf
import pypdf
from markitdown import MarkItDown, StreamInfo
from pdfminer.high_level import extract_text

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
pymupdf.TOOLS.mupdf_display_errors(False)
markitdown = MarkItDown()


def poppler(data, _):
    return subprocess.run(["pdftotext", "-layout", "-", "-"], input=data, capture_output=True, check=False).stdout.decode("utf-8", "replace")


def marked(data, about):
    extension = "." + about["filename"].rsplit(".", 1)[-1] if "." in about["filename"] else None
    mime, _, charset = (about["mimeType"] or "").partition("; charset=")
    info = StreamInfo(extension=extension, filename=about["filename"], mimetype=mime or None, charset=charset or None)
    return markitdown.convert_stream(io.BytesIO(data), stream_info=info).text_content


READERS = {
    "pdfminer.six": lambda data, _: extract_text(io.BytesIO(data)),
    "pypdf": lambda data, _: "\n".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(data)).pages),
    "pymupdf": lambda data, _: "\n".join(page.get_text() for page in pymupdf.open(stream=data, filetype="pdf")),
    "pdftotext -layout": poppler,
    "markitdown": marked,
}

version = subprocess.run(["pdftotext", "-v"], capture_output=True, text=True, check=False).stderr.split("\n")[0].split()[-1]
versions = {name: version if name.startswith("pdftotext") else importlib.metadata.version(name) for name in READERS}
archive = zipfile.ZipFile(sys.argv[1])
texts = {name: {} for name in READERS}
for about in json.loads(archive.read("cases.json")):
    for name, read in READERS.items():
        if name != "markitdown" and not about["path"].endswith(".pdf"):
            continue
        try:
            texts[name][about["path"]] = read(archive.read(about["path"]), about) or ""
        except Exception:  # A reader that fails gives no text.
            texts[name][about["path"]] = ""
json.dump({"versions": versions, "texts": texts}, sys.stdout)
