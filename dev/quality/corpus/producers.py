"""PDFs of many programs, and of the forms that programs give them."""
from __future__ import annotations

import io
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pymupdf as fitz
import matplotlib
import pikepdf
import pypdf
import typst
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import Paragraph, SimpleDocTemplate, Spacer

from case import case
from pdfs import DEJAVU, INVOICE, canvas, fpdf, lines, opened, raw, saved

matplotlib.use("pdf")
TEXT = "\n".join(INVOICE)


def chromium(html: str) -> bytes:
    """The PDF that Chromium prints. Its identifiers and times are made equal."""
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.html").write_text(html)
        subprocess.run([program, "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", f"--print-to-pdf={folder}/a.pdf",
                        f"file://{folder}/a.html"], check=True, capture_output=True, timeout=120)
        data = Path(folder, "a.pdf").read_bytes()
    return re.sub(rb"\(D:\d{14}[^)]*\)", b"(D:20200101000000+00'00')", data)


def libreoffice(source: bytes, suffix: str, target: str) -> bytes:
    """The file that LibreOffice makes of another."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"a{suffix}").write_bytes(source)
        subprocess.run(["soffice", "--headless", f"-env:UserInstallation=file://{folder}/profile", "--convert-to", target,
                        "--outdir", folder, f"{folder}/a{suffix}"], check=True, capture_output=True, timeout=300)
        return Path(folder, f"a.{target.split(':')[0]}").read_bytes()


def ghostscript(source: bytes, suffix: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"a{suffix}").write_bytes(source)
        subprocess.run(["gs", "-q", "-sDEVICE=pdfwrite", "-o", f"{folder}/out.pdf", f"{folder}/a{suffix}"], check=True, timeout=120)
        return Path(folder, "out.pdf").read_bytes()


def made() -> None:
    base = canvas(lines(*INVOICE))
    case("producers", "reportlab-canvas.pdf", base, TEXT)
    case("producers", "reportlab-uncompressed.pdf", canvas(lines(*INVOICE), pageCompression=0), TEXT)
    case("producers", "reportlab-times.pdf", canvas(lines(*INVOICE, font="Times-Italic")), TEXT)
    out = io.BytesIO()
    style = getSampleStyleSheet()["Normal"]
    paragraph = "The committee met on 14 March 2026 and approved 17 of 23 proposals. " * 6
    SimpleDocTemplate(out, pagesize=A4, invariant=1).build([Paragraph(INVOICE[0], getSampleStyleSheet()["Heading1"]), Spacer(1, 12), Paragraph(paragraph, style)])
    case("producers", "reportlab-platypus.pdf", out.getvalue(), f"{INVOICE[0]}\n{paragraph}")

    def core(pdf):
        pdf.set_font("Times", size=12)
        for line in INVOICE:
            pdf.cell(0, 10, line, new_x="LMARGIN", new_y="NEXT")
    case("producers", "fpdf2-core-font.pdf", fpdf(core), TEXT)

    def embedded(pdf):
        pdf.add_font("DejaVu", fname=f"{DEJAVU}/DejaVuSans.ttf")
        pdf.set_font("DejaVu", size=12)
        for line in [*INVOICE, "Preis: 12 € – „netto“"]:
            pdf.cell(0, 10, line, new_x="LMARGIN", new_y="NEXT")
    case("producers", "fpdf2-truetype.pdf", fpdf(embedded), f"{TEXT}\nPreis: 12 € – „netto“")

    document = fitz.open()
    page = document.new_page()
    for index, line in enumerate(INVOICE):
        page.insert_text((72, 72 + 18 * index), line)
    document.set_metadata({})
    case("producers", "pymupdf-insert.pdf", document.tobytes(deflate=True, garbage=3), TEXT)
    story = fitz.Story("<h2>Invoice 20417</h2><p>Bolts M8 <b>120</b> pieces <i>36.50</i></p><ul><li>Total 4250.75 EUR</li></ul>")
    out = io.BytesIO()
    writer = fitz.DocumentWriter(out)
    more = True
    while more:
        device = writer.begin_page(fitz.paper_rect("a4"))
        more, _ = story.place(fitz.Rect(50, 50, 545, 790))
        story.draw(device)
        writer.end_page()
    writer.close()
    case("producers", "mupdf-story.pdf", out.getvalue(), "Invoice 20417\nBolts M8 120 pieces 36.50\n• Total 4250.75 EUR")

    for name, options in {
        "object-streams": {"object_stream_mode": pikepdf.ObjectStreamMode.generate},
        "linearized": {"linearize": True},
        "version-1.4": {"force_version": "1.4", "object_stream_mode": pikepdf.ObjectStreamMode.disable},
        "qdf": {"qdf": True},
        "uncompressed": {"compress_streams": False, "stream_decode_level": pikepdf.StreamDecodeLevel.all},
    }.items():
        case("producers", f"qpdf-{name}.pdf", saved(opened(base), **options), TEXT)
    for name, options in {"rc4-128": {"R": 3, "aes": False, "metadata": False}, "aes-128": {"R": 4, "aes": True}, "aes-256": {"R": 6, "aes": True}}.items():
        encrypted = saved(opened(base), encryption=pikepdf.Encryption(owner="owner", user="", **options), static_id=True)
        case("producers", f"qpdf-encrypted-{name}.pdf", encrypted, TEXT)

    writer = pypdf.PdfWriter()
    writer.append(io.BytesIO(base))
    writer.append(io.BytesIO(canvas(lines("Appendix 7", "Page 2 of 2"))))
    out = io.BytesIO()
    writer.write(out)
    case("producers", "pypdf-merged.pdf", out.getvalue(), f"{TEXT}\nAppendix 7\nPage 2 of 2")
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(base))
    stamp = pypdf.PdfReader(io.BytesIO(canvas(lines("PAID 2026-04-02", at=300)))).pages[0]
    writer.pages[0].merge_page(stamp)
    out = io.BytesIO()
    writer.write(out)
    case("producers", "pypdf-overlay.pdf", out.getvalue(), f"{TEXT}\nPAID 2026-04-02")

    source = "= Invoice 20417\nOffice efficiency: 98.5 % of 1,204 files. #linebreak() Total *4250.75 EUR*\n#table(columns: 3, [Item], [Qty], [Price], [Bolt], [120], [36.50], [Nut], [80], [7.25])\n"
    right = "Invoice 20417\nOffice efficiency: 98.5 % of 1,204 files.\nTotal 4250.75 EUR\nItem Qty Price\nBolt 120 36.50\nNut 80 7.25"
    with tempfile.NamedTemporaryFile(suffix=".typ") as file:
        file.write(("#set document(date: none)\n" + source).encode())
        file.flush()
        case("producers", "typst.pdf", typst.compile(file.name), right)

    from matplotlib import pyplot
    for kind in (3, 42):
        matplotlib.rcParams["pdf.fonttype"] = kind
        figure = pyplot.figure(figsize=(5, 3))
        figure.text(0.1, 0.8, "Revenue 2026: 1,204.50 EUR")
        figure.text(0.1, 0.5, "Growth 17.3 % in 42 regions")
        out = io.BytesIO()
        figure.savefig(out, format="pdf", metadata={"CreationDate": None})
        pyplot.close(figure)
        case("producers", f"matplotlib-type{kind}.pdf", out.getvalue(), "Revenue 2026: 1,204.50 EUR\nGrowth 17.3 % in 42 regions")

    html = "<h1>Invoice 20417</h1><p>Bolts M8, <b>120</b> pieces: 36.50</p><table border=1><tr><th>Item<th>Qty<th>Price<tr><td>Bolt<td>120<td>36.50<tr><td>Nut<td>80<td>7.25</table><p>Total 4250.75 EUR"
    right = "Invoice 20417\nBolts M8, 120 pieces: 36.50\nItem Qty Price\nBolt 120 36.50\nNut 80 7.25\nTotal 4250.75 EUR"
    case("producers", "chromium.pdf", chromium(f"<meta charset=utf-8><body style='font-family:DejaVu Sans'>{html}"), right)
    case("producers", "chromium-columns.pdf", chromium(f"<meta charset=utf-8><body style='font-family:DejaVu Serif;columns:2;letter-spacing:1px'><p>Left part 11.25 and more.<p style='break-before:column'>Right part 22.50 ends."), "Left part 11.25 and more.\nRight part 22.50 ends.")
    script = "/Helvetica findfont 12 scalefont setfont " + " ".join(f"72 {720 - 16 * index} moveto ({line}) show" for index, line in enumerate(INVOICE)) + " showpage"
    case("producers", "ghostscript-postscript.pdf", ghostscript(script.encode(), ".ps"), TEXT)
    case("producers", "ghostscript-distilled.pdf", ghostscript(fpdf(embedded), ".pdf"), f"{TEXT}\nPreis: 12 € – „netto“")

    syntax()


def syntax() -> None:
    """Forms of PDF that few programs write, by hand."""
    split = raw(b"")
    page = split.pages[0].obj
    page.Contents = pikepdf.Array([split.make_stream(b"BT /F1 12 Tf 72 720 Td (Total 42.50)"), split.make_stream(b"Tj 0 -16 Td (of 7) Tj ET")])
    case("producers", "content-in-two-streams.pdf", saved(split), "Total 42.50\nof 7")
    form = raw(b"/X Do")
    form.pages[0].obj.Resources.XObject = pikepdf.Dictionary(X=form.make_stream(b"BT /F1 12 Tf 72 700 Td (In a form: 77.10) Tj ET", pikepdf.Object.parse(
        b"<< /Type /XObject /Subtype /Form /BBox [0 0 612 792] /Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Courier >> >> >> >>")))
    case("producers", "form-xobject.pdf", saved(form), "In a form: 77.10")
    inline = raw(b"q 10 0 0 10 72 600 cm BI /W 1 /H 1 /BPC 8 /CS /G ID \x80 EI Q BT /F1 12 Tf 72 720 Td (After the picture 12.5) Tj ET")
    case("producers", "inline-image.pdf", saved(inline), "After the picture 12.5")
    differences = raw(b"BT /F2 12 Tf 72 720 Td (\x01\x02\x03 7) Tj ET", "/F2 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding << /Differences [1 /Euro /Zcaron /section] >> >>")
    case("producers", "encoding-differences.pdf", saved(differences), "€Ž§ 7")
    roman = raw("BT /F2 12 Tf 72 720 Td (Café naïve 81) Tj ET".encode("mac_roman"), "/F2 << /Type /Font /Subtype /TrueType /BaseFont /Arial /Encoding /MacRomanEncoding >>")
    case("producers", "encoding-macroman.pdf", saved(roman), "Café naïve 81")
    unicode = raw(b"BT /F2 12 Tf 72 720 Td <000100020003> Tj ET")
    cmap = unicode.make_stream(b"/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <0000> <ffff> endcodespacerange 2 beginbfchar <0001> <00660069> <0002> <D83DDE00> endbfchar 1 beginbfrange <0003> <0005> <0037> endbfrange endcmap end")
    unicode.pages[0].obj.Resources.Font.F2 = pikepdf.Dictionary(Type=pikepdf.Name.Font, Subtype=pikepdf.Name.Type0, BaseFont=pikepdf.Name.X, Encoding=pikepdf.Name("/Identity-H"), ToUnicode=cmap,
        DescendantFonts=[pikepdf.Object.parse(b"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /X /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> /FontDescriptor << /Type /FontDescriptor /FontName /X /Flags 4 /FontBBox [0 0 1000 1000] /ItalicAngle 0 /Ascent 800 /Descent -200 /CapHeight 700 /StemV 80 >> >>")])
    case("producers", "tounicode.pdf", saved(unicode), "fi😀7")
    octal = raw(rb"BT /F1 12 Tf 72 720 Td (Paren \(1\) octal \101\102 line\
joined 9) Tj 0 -16 Td <48656C6C6F203432> Tj ET")
    case("producers", "strings.pdf", saved(octal), "Paren (1) octal AB linejoined 9\nHello 42")
    quotes = raw(b"BT /F1 12 Tf 14 TL 72 720 Td (One 1) Tj (Two 2) ' 1 0 (Three 3) \" [(Fo) -20 (ur) -400 (4)] TJ ET")
    case("producers", "show-operators.pdf", saved(quotes), "One 1\nTwo 2\nThree 3Four 4")
    for name in ("ASCIIHexDecode", "RunLengthDecode"):
        body = b"BT /F1 12 Tf 72 720 Td (Filter 31.5) Tj ET"
        data = body.hex().encode() + b">" if name == "ASCIIHexDecode" else bytes([len(body) - 1]) + body + b"\x80"
        pdf = raw(b"")
        pdf.pages[0].obj.Contents = pikepdf.Stream(pdf, data, Filter=pikepdf.Name(f"/{name}"))
        case("producers", f"filter-{name.lower()}.pdf", saved(pdf, compress_streams=False, stream_decode_level=pikepdf.StreamDecodeLevel.none), "Filter 31.5")
