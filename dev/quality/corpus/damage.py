"""Files that are damaged, or are not what they seem."""
from __future__ import annotations

import io
import re
import struct
import zlib

import docx
import pikepdf

from case import case, repacked
from pdfs import INVOICE, canvas, lines, opened, raw, saved

TEXT = "\n".join(INVOICE)
NO_TEXT = "[This page has no text: it is an image.]"


def scan(pages: list[bytes | None]) -> pikepdf.Pdf:
    """Pages with these contents; None is a picture of a page."""
    pdf = pikepdf.new()
    picture = pikepdf.Stream(pdf, zlib.compress(bytes(64)), Type=pikepdf.Name.XObject, Subtype=pikepdf.Name.Image, Width=8, Height=8, BitsPerComponent=8, ColorSpace=pikepdf.Name.DeviceGray, Filter=pikepdf.Name.FlateDecode)
    picture = pdf.make_indirect(picture)
    for content in pages:
        page = pikepdf.Object.parse(b"<< /Type /Page /MediaBox [0 0 612 792] /Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>")
        page.Resources.XObject = pikepdf.Dictionary(Im=picture)
        page.Contents = pdf.make_stream(b"q 612 0 0 792 0 0 cm /Im Do Q" if content is None else content)
        pdf.pages.append(pikepdf.Page(page))
    return pdf


def made() -> None:
    base = saved(opened(canvas(lines(*INVOICE))), object_stream_mode=pikepdf.ObjectStreamMode.disable, qdf=True)
    packed = canvas(lines(*INVOICE))
    case("damage", "bytes-before.pdf", b"\r\n\0\0junk\r\n" + packed, TEXT)
    case("damage", "mail-headers-before.pdf", b"Content-Type: application/pdf\r\nContent-Transfer-Encoding: binary\r\n\r\n" + packed, TEXT)
    case("damage", "bytes-after.pdf", packed + b"\n<html>trailing</html>" * 20, TEXT)
    case("damage", "wrong-startxref.pdf", re.sub(rb"startxref\s+\d+", b"startxref\n99999", base), TEXT)
    case("damage", "wrong-offsets.pdf", re.sub(rb"\d{10} 00000 n", b"0000000017 00000 n", base), TEXT)
    case("damage", "no-xref.pdf", base[: base.rindex(b"xref", 0, base.rindex(b"startxref"))] + base[base.rindex(b"trailer"):], TEXT)
    case("damage", "no-trailer.pdf", base[: base.rindex(b"trailer")], TEXT)
    case("damage", "cut-in-xref.pdf", base[: base.rindex(b"startxref") - 60], TEXT)
    case("damage", "no-endstream.pdf", base.replace(b"endstream", b"         "), TEXT)
    case("damage", "no-endobj.pdf", base.replace(b"endobj", b"      "), TEXT)
    length = re.sub(rb"/Length \d+ 0 R", b"/Length 5", base)
    case("damage", "wrong-length.pdf", length, TEXT)
    case("damage", "carriage-returns.pdf", packed.replace(b"%PDF-1.4\n", b"%PDF-1.4\r"), TEXT)
    case("damage", "wrong-version.pdf", packed.replace(b"%PDF-1.4", b"%PDF-9.9"), TEXT)
    two = canvas(lambda page: (lines(*INVOICE)(page), lines("Second page 88")(page)))
    pdf = opened(two)
    del pdf.pages[1].obj.Contents
    case("damage", "page-without-content.pdf", saved(pdf), TEXT)
    flate = opened(canvas(lines(*[f"Line {number} says {number * 131}" for number in range(1, 40)])))
    content = flate.pages[0].Contents.read_bytes()
    flate.pages[0].obj.Contents = pikepdf.Stream(flate, zlib.compress(content)[:-90], Filter=pikepdf.Name.FlateDecode)
    case("damage", "cut-stream.pdf", saved(flate, compress_streams=False), "\n".join(f"Line {number} says {number * 131}" for number in range(1, 29)), told=["[A part of this page cannot be read.]"])
    case("damage", "scan.pdf", saved(scan([None, None])), "", error="unsupported_file")
    case("damage", "scanned-pages.pdf", saved(scan([None, b"BT /F1 12 Tf 72 700 Td (Page two 22) Tj ET", None, None])), "Page two 22", told=[NO_TEXT])
    case("damage", "no-font.pdf", saved(raw(b"BT 72 720 Td (lost 1) Tj ET BT /F1 12 Tf 72 700 Td (Kept 2) Tj ET")), "Kept 2", told=["[A part of this page cannot be read.]"])
    case("damage", "password.pdf", saved(opened(packed), encryption=pikepdf.Encryption(owner="a", user="b"), static_id=True), "", error="unsupported_file")
    case("damage", "cut-in-half.pdf", packed[: len(packed) // 3], "", error="invalid_file")
    case("damage", "header-only.pdf", b"%PDF-1.7\n", "", error="invalid_file")
    document = docx.Document()
    document.add_paragraph("Report 42")
    out = io.BytesIO()
    document.save(out)
    whole = repacked(out.getvalue())
    case("damage", "cut.docx", whole[: len(whole) // 2], "", error="invalid_file")
    case("damage", "old.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), "", error="unsupported_file")
    case("damage", "picture.pdf", b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR", "", error="unsupported_file")
    case("damage", "binary.txt", bytes(range(256)) * 4, "", error="unsupported_file")

    # Names and media types that say something else than the content.
    case("names", "pdf-called-txt", packed, TEXT, filename="report.txt", mime="text/plain")
    case("names", "pdf-without-name", packed, TEXT, filename="unnamed", mime="application/octet-stream")
    case("names", "docx-called-zip", whole, "Report 42", filename="report.zip", mime="application/zip")
    case("names", "docx-called-pdf", whole, "Report 42", filename="report.pdf", mime="application/pdf")
    case("names", "csv-called-xls", b"a;b\r\n1;2.50\r\n", "a;b\n1;2.50", filename="export.xls", mime="application/vnd.ms-excel")
    case("names", "html-called-xls", b"<html><body><table><tr><td>Item</td><td>12.50</td></tr></table></body></html>", "Item 12.50", filename="export.xls", mime="application/vnd.ms-excel")
    case("names", "html-without-name", b"<!DOCTYPE html><title>Head</title><p>Body 42", "Head Body 42", filename="page")
    case("names", "html-source-as-text", b"<p>Body 42", "<p>Body 42", filename="a.txt", mime="text/plain")
    case("names", "upper-case", packed, TEXT, filename="REPORT.PDF")
    case("names", "text-about-pdf", b"The file begins with %PDF-1.7\nand so on 42.", "The file begins with %PDF-1.7\nand so on 42.", filename="notes.txt", mime="text/plain")
    case("names", "rtf-called-doc", rb"{\rtf1\ansi Invoice 42\par Total 4250.75}", "Invoice 42\nTotal 4250.75", filename="a.doc", mime="application/msword")
