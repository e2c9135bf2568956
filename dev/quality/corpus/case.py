"""The cases of the corpus: each is a file and the text that a reader of it sees."""
from __future__ import annotations

import io
import json
import re
import zipfile
from dataclasses import dataclass, field


@dataclass
class Case:
    group: str
    name: str
    data: bytes
    # The text that a person who opens the file sees, in its order.
    text: str
    filename: str
    mime: str | None = None
    # Sentences that tell what could not be read.
    told: list[str] = field(default_factory=list)
    # The words may be wrong, where that is told.
    unsure: bool = False
    # The code of the error of a file that cannot be read.
    error: str | None = None


CASES: list[Case] = []


def case(group: str, name: str, data: bytes, text: str, *, filename: str | None = None, mime: str | None = None,
         told: list[str] | None = None, unsure: bool = False, error: str | None = None) -> None:
    """Adds a case. The extension of `name` is the file's; `filename` is its name where that differs."""
    path = f"{group}/{name}"
    if any(f"{known.group}/{known.name}" == path for known in CASES):
        raise ValueError(f"{path} is there twice.")
    CASES.append(Case(group, name, data, text.strip(), filename or name, mime, told or [], unsure, error))


# Times and identifiers that writers put into their files: with others each run would change the archive.
ZIP_TIME = (2020, 1, 1, 0, 0, 0)


def repacked(data: bytes) -> bytes:
    """The same ZIP archive with fixed times."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            info = zipfile.ZipInfo(name, ZIP_TIME)
            info.compress_type = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            content = old.read(name)
            if name.endswith((".xml", ".opf", ".ncx")):
                content = re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?", b"2020-01-01T00:00:00Z", content)
            new.writestr(info, content)
    return out.getvalue()


def write_archive(path: str) -> None:
    """Writes all cases into one ZIP archive: the files, and `cases.json`."""
    about = []
    with zipfile.ZipFile(path, "w") as archive:
        for each in CASES:
            about.append({
                "path": f"{each.group}/{each.name}", "group": each.group, "filename": each.filename,
                "mimeType": each.mime, "text": each.text, "told": each.told, "unsure": each.unsure, "error": each.error,
            })
            info = zipfile.ZipInfo(f"{each.group}/{each.name}", ZIP_TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, each.data, compresslevel=9)
        info = zipfile.ZipInfo("cases.json", ZIP_TIME)
        info.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(info, json.dumps(about, ensure_ascii=False, indent=1), compresslevel=9)
