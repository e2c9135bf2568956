"""PDFs whose words stand at places that have a meaning."""
from __future__ import annotations

import io
import tempfile

import typst
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle, getSampleStyleSheet
from reportlab.platypus import BaseDocTemplate, Frame, FrameBreak, PageTemplate, Paragraph, SimpleDocTemplate, Table, TableStyle

from case import case
from pdfs import canvas, opened, raw, saved
from producers import chromium

NORMAL = getSampleStyleSheet()["Normal"]
LONG = [f"Sentence {number} of the report says that {number * 37} of {number * 91} parts were sold." for number in range(1, 13)]


def placed(*texts: tuple[float, float, str], size: float = 10) -> bytes:
    """Each text by itself, at its place in points from the lower left."""
    def draw(page):
        page.setFont("Helvetica", size)
        for x, y, text in texts:
            page.drawString(x, y, text)
        page.showPage()
    return canvas(draw)


def typeset(source: str) -> bytes:
    with tempfile.NamedTemporaryFile(suffix=".typ") as file:
        file.write(("#set document(date: none)\n" + source).encode())
        file.flush()
        return typst.compile(file.name)


def built(flow, template=None) -> bytes:
    out = io.BytesIO()
    if template:
        document = BaseDocTemplate(out, pagesize=A4, invariant=1)
        document.addPageTemplates([template])
        document.build(flow)
    else:
        SimpleDocTemplate(out, pagesize=A4, invariant=1).build(flow)
    return out.getvalue()


def made() -> None:
    columns = PageTemplate(frames=[Frame(50, 50, 230, 740), Frame(310, 50, 230, 740)])
    left, right = " ".join(LONG[:6]), " ".join(LONG[6:])
    case("layouts", "two-columns.pdf", built([Paragraph(left, NORMAL), FrameBreak(), Paragraph(right, NORMAL)], columns), f"{left}\n{right}")
    case("layouts", "two-columns-typst.pdf", typeset(f"#set page(columns: 2)\n{left}\n#colbreak()\n{right}"), f"{left}\n{right}")
    case("layouts", "two-columns-chromium.pdf", chromium(f"<meta charset=utf-8><body style='columns:2;font:12px DejaVu Serif'><p>{left}<p style='break-before:column'>{right}"), f"{left}\n{right}")
    rows = [["Item", "Qty", "Unit price", "Sum"], ["Bolt M8", "120", "0.35", "42.00"], ["Nut M8", "1,200", "0.08", "96.00"], ["Total", "", "", "138.00"]]
    text = "\n".join(" ".join(row) for row in rows)
    case("layouts", "table-grid.pdf", built([Table(rows, style=TableStyle([("GRID", (0, 0), (-1, -1), 0.5, colors.black)]))]), text)
    case("layouts", "table-right-aligned.pdf", built([Table(rows, style=TableStyle([("ALIGN", (1, 0), (-1, -1), "RIGHT")]))]), text)
    case("layouts", "table-narrow.pdf", built([Table(rows, colWidths=[48, 32, 50, 34], style=TableStyle([("ALIGN", (1, 0), (-1, -1), "RIGHT"), ("LEFTPADDING", (0, 0), (-1, -1), 1), ("RIGHTPADDING", (0, 0), (-1, -1), 1)]))]), text)
    by_column = [(x, 700 - 16 * y, rows[y][column]) for column, x in enumerate((72, 160, 240, 340)) for y in range(4) if rows[y][column]]
    case("layouts", "table-drawn-by-column.pdf", placed(*by_column), "\n".join(each for _, _, each in by_column))
    case("layouts", "invoice-glued.pdf", placed((72, 740, "VAT 123456"), (200, 740, "4250 EUR are due."), (72, 700, "12"), (72, 688, "3.50"), (72, 676, "0.99"), (72, 640, "82"), (200, 640, "Part"), (227, 640, "4835"), (300, 640, "TOWN")),
         "VAT 123456 4250 EUR are due.\n12\n3.50\n0.99\n82 Part 4835 TOWN")
    case("layouts", "numbers-close.pdf", placed((72, 700, "100"), (95, 700, "200"), (118, 700, "300"), (72, 686, "1.5"), (90, 686, "2.5"), (72, 672, "-7"), (86, 672, "-8")), "100 200 300\n1.5 2.5\n-7 -8")
    case("layouts", "overlapping-baselines.pdf", placed((72, 700, "Amount"), (140, 702, "17.25"), (200, 699, "EUR")), "Amount 17.25 EUR")

    def rotated(page):
        page.setFont("Helvetica", 11)
        page.drawString(72, 700, "Upright 11.5")
        page.saveState()
        page.translate(500, 300)
        page.rotate(90)
        page.drawString(0, 0, "Turned left 22.5")
        page.restoreState()
        page.saveState()
        page.translate(300, 300)
        page.rotate(45)
        page.drawString(0, 0, "DRAFT 33")
        page.drawString(0, -20, "second line 44")
        page.restoreState()
        page.saveState()
        page.translate(300, 100)
        page.rotate(180)
        page.drawString(0, 0, "Upside down 55")
        page.drawString(0, -16, "and its next 66")
        page.restoreState()
        page.showPage()
    case("layouts", "rotated-text.pdf", canvas(rotated), "Upright 11.5\nTurned left 22.5\nDRAFT 33\nsecond line 44\nUpside down 55\nand its next 66")
    for angle in (90, 180, 270):
        pdf = opened(placed((72, 700, "Page that is turned 12"), (72, 680, "by degrees"), (200, 680, "3.75")))
        pdf.pages[0].obj.Rotate = angle
        case("layouts", f"rotated-page-{angle}.pdf", saved(pdf), "Page that is turned 12\nby degrees 3.75")
    vertical = b"".join(b"BT /F1 10 Tf 0 1 -1 0 %d %d Tm (%s) Tj ET " % (x, y, text) for x, y, text in [(100, 100, b"Item"), (100, 200, b"Price"), (116, 100, b"Bolt"), (116, 200, b"36.50")])
    case("layouts", "rotated-table.pdf", saved(raw(vertical)), "Item Price\nBolt 36.50")

    case("layouts", "footnotes.pdf", typeset("Revenue grew by 17.3 %#footnote[Audited on 14 March 2026.] in 42 regions.#footnote[Without Norway, see page 9.]"),
         "Revenue grew by 17.3 %1 in 42 regions.2\n1Audited on 14 March 2026.\n2Without Norway, see page 9.")
    case("layouts", "ligatures.pdf", typeset("The office found five efficient, affluent waffles: first fjord, flat 12 ﬁnal."), "The office found five efficient, affluent waffles: first fjord, flat 12 final.")
    case("layouts", "ligatures-chromium.pdf", chromium("<meta charset=utf-8><body style='font-family:DejaVu Serif;font-variant-ligatures:common-ligatures'><p>The office found five efficient, affluent waffles."), "The office found five efficient, affluent waffles.")
    case("layouts", "hyphens-typst.pdf", typeset("#set page(width: 120pt, height: 400pt, margin: 10pt)\n#set par(justify: true)\n#set text(lang: \"en\", hyphenate: true)\nInternationalization considerations notwithstanding, extraordinary circumstances demonstrate responsibilities."),
         "Internationalization considerations notwithstanding, extraordinary circumstances demonstrate responsibilities.")
    case("layouts", "hyphens-chromium.pdf", chromium("<meta charset=utf-8><body style='width:90px;font:14px DejaVu Sans'><p>Soft extra&shy;ordinary co&shy;operation well-known 2026-03-14."), "Soft extraordinary cooperation well-known 2026-03-14.")
    case("layouts", "hard-hyphens.pdf", built([Table([[Paragraph("Order A-7731-2026 of the well-known firm", ParagraphStyle("n", parent=NORMAL))]], colWidths=[300])]), "Order A-7731-2026 of the well-known firm")
    case("layouts", "justified.pdf", typeset(f"#set par(justify: true)\n#set page(width: 200pt, height: 600pt, margin: 10pt)\n#set text(hyphenate: false)\n{left}"), left)
    from reportlab.pdfbase.pdfmetrics import stringWidth
    for font, name in (("Helvetica", "F1"), ("Courier", "F2")):
        each = b"".join(b"BT /%s 12 Tf %.2f 700 Td (%c) Tj ET " % (name.encode(), 72 + stringWidth("Total 1234.56"[:index], font, 12), char) for index, char in enumerate(b"Total 1234.56") if char != 32)
        case("layouts", f"character-by-character-{font.lower()}.pdf", saved(raw(each, "/F2 << /Type /Font /Subtype /Type1 /BaseFont /Courier >>")), "Total 1234.56")
    case("layouts", "exponents.pdf", built([Paragraph("A file of 10<super>6</super> parts in 42 regions<super>3</super>, 2<super>10</super> bytes, 5 m<super>2</super>.", NORMAL)]), "A file of 10^6 parts in 42 regions3, 2^10 bytes, 5 m2.")
    case("layouts", "spaces-as-kerning.pdf", saved(raw(b"BT /F1 12 Tf 72 700 Td [(Three)-333(words)-333(42)-50(.)-20(7)] TJ 0 -16 Td 4 Tw (Wide spaces 9) Tj 0 Tw 0 -16 Td 1.5 Tc (Apart 8) Tj ET")), "Three words 42.7\nWide spaces 9\nApart 8")
    case("layouts", "sub-and-superscript.pdf", typeset("Water is H#sub[2]O, the area 25 m#super[2]. End 7."), "Water is H2O, the area 25 m2. End 7.")
    twice = b"BT /F1 12 Tf 72 700 Td (Bold total 42.50) Tj ET BT /F1 12 Tf 72.3 700 Td (Bold total 42.50) Tj ET BT /F1 12 Tf 72 680 Td (Plain 1) Tj ET"
    case("layouts", "drawn-twice.pdf", saved(raw(twice)), "Bold total 42.50\nPlain 1")
    case("layouts", "invisible-ocr.pdf", saved(raw(b"BT 3 Tr /F1 12 Tf 72 700 Td (Recognised text 4711) Tj ET")), "Recognised text 4711")
    case("layouts", "contents-list.pdf", typeset("#outline()\n= First chapter\nText 1.\n#pagebreak()\n= Second chapter\nText 2."), "Contents\nFirst chapter 1\nSecond chapter 2\nFirst chapter\nText 1.\nSecond chapter\nText 2.")
    case("layouts", "mathematics.pdf", typeset("The sum $a + b = 42$ holds."), "The sum 𝑎 + 𝑏 = 42 holds.")
    case("layouts", "actual-text.pdf", saved(raw(b"/Span << /ActualText (Total 99) >> BDC BT /F1 12 Tf 72 700 Td (Total 99) Tj ET EMC BT /F1 12 Tf 72 680 Td (Next 1) Tj ET")), "Total 99\nNext 1")

    def pages(header, footer, bodies):
        def draw(page):
            for number, body in enumerate(bodies, 1):
                page.setFont("Helvetica", 9)
                page.drawString(72, 810, header(number))
                page.drawString(72, 30, footer(number))
                page.setFont("Helvetica", 11)
                for index, line in enumerate(body):
                    page.drawString(72, 740 - 16 * index, line)
                page.showPage()
        return canvas(draw, pagesize=A4)
    bodies = [[f"Body of page {number}: {number * 113} parts", "Same body line 42"] for number in range(1, 6)]
    # The header and the footer are given at their first page alone.
    once = "ACME Annual Report 2026\nConfidential - Page 1 of 5\n" + "\n".join("\n".join(body) for body in bodies)
    case("headers", "repeated.pdf", pages(lambda _: "ACME Annual Report 2026", lambda number: f"Confidential - Page {number} of 5", bodies), once)
    case("headers", "number-that-differs.pdf", pages(lambda number: f"Balance carried forward {number * 1000}.50", lambda number: f"{number}", bodies[:3]),
         "\n".join(f"Balance carried forward {number * 1000}.50\n{number if number == 1 else ''}\n" + "\n".join(bodies[number - 1]) for number in range(1, 4)))
    tables = [[*rows[0:1], *[[f"Part {page}-{row}", str(page * row), "0.35", f"{page * row * 0.35:.2f}"] for row in range(1, 4)]] for page in range(1, 4)]
    case("headers", "table-head-in-the-body.pdf", pages(lambda _: "Price list 2026", lambda number: f"{number}/3", [[" ".join(row) for row in table] for table in tables]),
         "Price list 2026\n1/3\n" + "\n".join(" ".join(row) for table in tables for row in table))
    dense = [[f"Row {page * 40 + row} sold {page * row}" for row in range(40)] for page in range(3)]
    def tight(page):
        for rows in dense:
            page.setFont("Helvetica", 11)
            for index, line in enumerate(["Row and number", *rows]):
                page.drawString(72, 825 - 16 * index, line)
            page.showPage()
    case("headers", "table-head-beside-its-rows.pdf", canvas(tight, pagesize=A4), "\n".join("\n".join(["Row and number", *rows]) for rows in dense))
    case("headers", "chapters.pdf", pages(lambda number: "Chapter 1: Start" if number < 3 else "Chapter 2: End", lambda number: f"- {number + 10} -", bodies),
         "Chapter 1: Start\n- 11 -\n" + "\n".join("\n".join(body) for body in bodies[:2]) + "\nChapter 2: End\n" + "\n".join("\n".join(body) for body in bodies[2:]))
    case("headers", "left-and-right.pdf", pages(lambda number: "ACME Report" if number % 2 else "Annual 2026", lambda number: f"Page {number}", bodies),
         "ACME Report\nPage 1\n" + "\n".join(bodies[0]) + "\nAnnual 2026\n" + "\n".join("\n".join(body) for body in bodies[1:]))
    case("headers", "account-number-differs.pdf", pages(lambda number: f"Account 4711-{number}", lambda number: f"Sum {number * 7} EUR", bodies),
         "\n".join(f"Account 4711-{number}\nSum {number * 7} EUR\n" + "\n".join(bodies[number - 1]) for number in range(1, 6)))
