"""Parts of PDFs that several files of cases use."""
from __future__ import annotations

import datetime
import io

import pikepdf
from fpdf import FPDF
from reportlab.pdfgen.canvas import Canvas

DEJAVU = "/usr/share/fonts/truetype/dejavu"
NOTO = "/usr/share/fonts/truetype/noto"
WHEN = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)

INVOICE = ["Invoice 20417", "Date: 2026-03-14", "Bolts M8 120 pieces 36.50", "Total 4250.75 EUR"]


def canvas(draw, **options) -> bytes:
    """A PDF of reportlab; `draw` gets its canvas."""
    out = io.BytesIO()
    page = Canvas(out, invariant=1, pageCompression=options.pop("pageCompression", 1), **options)
    draw(page)
    page.save()
    return out.getvalue()


def lines(*texts: str, font: str = "Helvetica", size: float = 11, at: float = 750):
    """Draws lines below each other."""
    def draw(page: Canvas) -> None:
        page.setFont(font, size)
        for index, text in enumerate(texts):
            page.drawString(72, at - 16 * index, text)
        page.showPage()
    return draw


def fpdf(draw) -> bytes:
    """A PDF of fpdf2; `draw` gets it with one page."""
    pdf = FPDF()
    pdf.set_creation_date(WHEN)
    pdf.add_page()
    draw(pdf)
    return bytes(pdf.output())


def saved(pdf: pikepdf.Pdf, **options) -> bytes:
    out = io.BytesIO()
    pdf.save(out, deterministic_id="encryption" not in options, **options)
    return out.getvalue()


def opened(data: bytes) -> pikepdf.Pdf:
    return pikepdf.open(io.BytesIO(data))


def raw(content: bytes, fonts: str = "", entries: str = "", more: list[str] | None = None) -> pikepdf.Pdf:
    """A page with a content stream, and fonts as PDF syntax; `/F1` is Helvetica."""
    pdf = pikepdf.new()
    for each in more or []:
        pdf.make_indirect(pikepdf.Object.parse(each.encode()))
    page = pikepdf.Object.parse(
        f"<< /Type /Page /MediaBox [0 0 612 792] {entries} /Resources << /Font << /F1 << /Type /Font /Subtype /Type1"
        f" /BaseFont /Helvetica /Encoding /WinAnsiEncoding >> {fonts} >> >> >>".encode())
    page.Contents = pdf.make_stream(content)
    pdf.pages.append(pikepdf.Page(page))
    return pdf
