"""Office files, OpenDocument, RTF."""
from __future__ import annotations

import datetime
import io

import docx
import openpyxl
import pptx
import xlsxwriter
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from docx.shared import Inches
from odf import draw as odfdraw
from odf import table as odftable
from odf import text as odftext
from odf.office import Annotation
from odf.opendocument import OpenDocumentPresentation, OpenDocumentSpreadsheet, OpenDocumentText
from odf.style import MasterPage, PageLayout
from openpyxl.comments import Comment
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches as Inch

from case import case, repacked
from producers import libreoffice


def kept(document) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return repacked(out.getvalue())


def word(name, build, text) -> None:
    document = docx.Document()
    build(document)
    case("office", f"{name}.docx", kept(document), text)


def documents() -> None:
    def report(document):
        document.add_heading("Report 2026", 1)
        document.add_paragraph("Sales were 4250.75 EUR.")
        table = document.add_table(rows=2, cols=3)
        for cell, value in zip([*table.rows[0].cells, *table.rows[1].cells], ["Item", "Qty", "Price", "Bolt", "120", "36.50"]):
            cell.text = value
    word("heading-and-table", report, "Report 2026\nSales were 4250.75 EUR.\nItem Qty Price\nBolt 120 36.50")

    def lists(document):
        for text in ("First 11", "Second 22"):
            document.add_paragraph(text, style="List Number")
        document.add_paragraph("Dot 33", style="List Bullet")
    word("lists", lists, "1. First 11\n2. Second 22\n- Dot 33")

    def head(document):
        section = document.sections[0]
        section.header.paragraphs[0].text = "ACME 2026"
        section.footer.paragraphs[0].text = "Confidential 7"
        document.add_paragraph("Body 42")
        second = document.add_section()
        second.header.is_linked_to_previous = True
        document.add_paragraph("Body 43")
    word("header-and-footer", head, "ACME 2026\nBody 42\nBody 43\nConfidential 7")

    def comments(document):
        paragraph = document.add_paragraph()
        run = paragraph.add_run("The price is 12.50")
        document.add_comment(run, text="Check this: 13?", author="Ann", initials="A")
    word("comment", comments, "The price is 12.50 [comment by Ann: Check this: 13?]")

    def special(document):
        run = document.add_paragraph("A").add_run("before")
        run._r.append(OxmlElement("w:noBreakHyphen"))
        more = OxmlElement("w:t")
        more.text = "after"
        run._r.append(more)
        run.add_break()
        run.add_text("next\tcell 5")
        soft = document.add_paragraph().add_run("extra")
        soft._r.append(OxmlElement("w:softHyphen"))
        rest = OxmlElement("w:t")
        rest.text = "ordinary 6"
        soft._r.append(rest)
        symbol = OxmlElement("w:sym")
        symbol.set(qn("w:font"), "Wingdings")
        symbol.set(qn("w:char"), "F0FE")
        document.add_paragraph("Done ").add_run()._r.append(symbol)
    word("special-characters", special, "Abefore-after\nnext cell 5\nextraordinary 6\nDone ☒")

    def tracked(document):
        paragraph = document.add_paragraph("Sum")
        for kind, tag, text in (("w:del", "w:delText", " 100"), ("w:ins", "w:t", " 250")):
            change, run, word_text = OxmlElement(kind), OxmlElement("w:r"), OxmlElement(tag)
            change.set(qn("w:author"), "Ann")
            word_text.text = text
            word_text.set(qn("xml:space"), "preserve")
            run.append(word_text)
            change.append(run)
            paragraph._p.append(change)
    word("tracked-changes", tracked, "Sum 250")

    def merged(document):
        table = document.add_table(rows=2, cols=3)
        table.cell(0, 0).merge(table.cell(0, 2)).text = "Over all 1"
        for column in range(3):
            table.cell(1, column).text = f"c{column} {column * 7}"
        table.cell(1, 0).add_table(1, 2).cell(0, 0).text = "inner 9"
    word("merged-and-nested-cells", merged, "Over all 1\nc0 0 inner 9 c1 7 c2 14")

    def boxes(document):
        run = document.add_paragraph("Before ").add_run()
        picture = docx.oxml.parse_xml(
            '<w:pict xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:v="urn:schemas-microsoft-com:vml">'
            '<v:shape><v:textbox><w:txbxContent><w:p><w:r><w:t>In a box 55</w:t></w:r></w:p></w:txbxContent></v:textbox></v:shape></w:pict>')
        run._r.append(picture)
        field = docx.oxml.parse_xml('<w:fldSimple xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" w:instr="DATE"><w:r><w:t>14.3.2026</w:t></w:r></w:fldSimple>')
        document.add_paragraph("On ")._p.append(field)
        content = docx.oxml.parse_xml('<w:sdt xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:sdtContent><w:p><w:r><w:t>Controlled 66</w:t></w:r></w:p></w:sdtContent></w:sdt>')
        document.element.body.insert(2, content)
    word("boxes-fields-controls", boxes, "Before In a box 55\nOn 14.3.2026\nControlled 66")

    def sections(document):
        document.add_paragraph("Über Größe: 5 µm, naïve – „Zitat“ 日本語 עברית")
        document.add_page_break()
        document.add_paragraph("After 8")
    word("unicode", sections, "Über Größe: 5 µm, naïve – „Zitat“ 日本語 עברית\nAfter 8")

    def equation(document):
        math = docx.oxml.parse_xml('<m:oMath xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"><m:r><m:t>E=42</m:t></m:r></m:oMath>')
        document.add_paragraph("So ")._p.append(math)
    word("equation", equation, "So E=42")

    def link(document):
        relation = document.part.relate_to("https://example.com/price?id=9921", "http://schemas.openxmlformats.org/officeDocument/2006/relationships/hyperlink", is_external=True)
        anchor = OxmlElement("w:hyperlink")
        anchor.set(qn("r:id"), relation)
        run, text = OxmlElement("w:r"), OxmlElement("w:t")
        text.text = "the list"
        run.append(text)
        anchor.append(run)
        document.add_paragraph("See ")._p.append(anchor)
    word("hyperlink", link, "See the list <https://example.com/price?id=9921>")


def workbooks() -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Prices"
    sheet.append(["Item", "Share", "Price", "Time", "Date", "Moment"])
    sheet.append(["Bolt", 0.195, 1234.5, datetime.timedelta(hours=26, minutes=30), datetime.date(2026, 3, 31), datetime.datetime(2026, 3, 31, 14, 5)])
    for cell, shape in zip(sheet[2][1:5], ["0.0%", '#,##0.00 "€"', "[h]:mm", "DD.MM.YYYY"]):
        cell.number_format = shape
    sheet["A3"], sheet["B3"] = "Sum", "=B2*2"
    sheet["A2"].comment = Comment("ask Berg 7731", "Ann")
    hidden = book.create_sheet("Secret")
    hidden.sheet_state = "hidden"
    hidden.append(["Margin", 17])
    case("office", "formats.xlsx", kept(book), "Prices\nItem Share Price Time Date Moment\nBolt 19.5% 1,234.50 € 26:30 2026-03-31 2026-03-31 14:05:00\nSum =B2*2\n[comment on A2 by Ann: ask Berg 7731]\nSecret (hidden)\nMargin 17")

    out = io.BytesIO()
    with xlsxwriter.Workbook(out, {"in_memory": True}) as made:
        sheet = made.add_worksheet("Data")
        sheet.write_row(0, 0, ["Name", "Value"])
        sheet.write_row(1, 0, ["Größe", 42.5])
        sheet.write_formula(2, 1, "=SUM(B2:B2)", None, 42.5)
        sheet.write_rich_string(3, 0, "plain ", made.add_format({"bold": True}), "bold 7")
        sheet.write_boolean(4, 0, True)
        sheet.write(5, 0, "a\nb")
        sheet.write_url(6, 0, "https://example.com/9921", string="link 8")
        sheet.merge_range(7, 0, 7, 1, "over 2", made.add_format())
        sheet.insert_textbox(9, 0, "In a box 55")
        sheet.write(8, 3, 1e-7)
        chart = made.add_chart({"type": "column"})
        chart.add_series({"values": "=Data!$B$2:$B$3", "values_data": [42.5, 42.5]})
        chart.set_title({"name": "Chart of 2026"})
        sheet.insert_chart("F2", chart)
    case("office", "xlsxwriter.xlsx", repacked(out.getvalue()), "Data\nName Value\nGröße 42.5\n42.5\nplain bold 7\nTRUE\na b\nlink 8\nover 2\n1E-07\n[link of A7: https://example.com/9921]\nIn a box 55\nChart of 2026\nseries: 42.5, 42.5")

    book = openpyxl.Workbook()
    sheet = book.active
    for number in range(1, 1_201):
        sheet.append([f"row {number}", number * 3])
    case("office", "long-sheet.xlsx", kept(book), "Sheet\n" + "\n".join(f"row {number} {number * 3}" for number in range(1, 1_201)))
    book = openpyxl.Workbook()
    sheet = book.active
    for index, (value, shape) in enumerate([(1234567.891, "#,##0"), (-42.5, "#,##0.00;[Red](#,##0.00)"), (0.5, "# ?/?"), (4711, "00000"), (12345678901234, "0"), (1.5, '0.0 "kg"'), (0.25, "0%"), (36526.5, "yyyy-mm-dd hh:mm"), (99, "$#,##0.00"), (5, "General"), (0.1, "General"), (0.30000000000000004, "General")]):
        cell = sheet.cell(row=index + 1, column=1, value=value)
        cell.number_format = shape
    case("office", "number-formats.xlsx", kept(book), "Sheet\n1,234,568\n(42.50)\n1/2\n04711\n12345678901234\n1.5 kg\n25%\n2000-01-01 12:00:00\n$99.00\n5\n0.1\n0.3")


def slides() -> None:
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text = "Results 2026"
    slide.placeholders[1].text = "Revenue 4250.75\nGrowth 17.3 %"
    slide.notes_slide.notes_text_frame.text = "Say 99 slowly"
    second = show.slides.add_slide(show.slide_layouts[5])
    second.shapes.title.text = "Table"
    table = second.shapes.add_table(2, 2, Inch(1), Inch(2), Inch(4), Inch(1)).table
    for index, value in enumerate(["Item", "Price", "Bolt", "36.50"]):
        table.cell(index // 2, index % 2).text = value
    group = second.shapes.add_group_shape()
    group.shapes.add_textbox(Inch(1), Inch(4), Inch(2), Inch(1)).text_frame.text = "Grouped 12"
    case("office", "slides.pptx", kept(show), "Results 2026\nRevenue 4250.75\nGrowth 17.3 %\nNotes: Say 99 slowly\nTable\nItem Price\nBolt 36.50\nGrouped 12")
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[5])
    slide.shapes.title.text = "Chart"
    data = CategoryChartData()
    data.categories = ["East", "West"]
    data.add_series("Sales 2026", (19.2, 21.4))
    slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, Inch(1), Inch(2), Inch(4), Inch(3), data)
    case("office", "chart.pptx", kept(show), "Chart\nSales 2026: East 19.2, West 21.4")


def open_documents() -> None:
    def kept_open(document) -> bytes:
        out = io.BytesIO()
        document.write(out)
        return repacked(out.getvalue())
    document = OpenDocumentText()
    document.text.addElement(odftext.H(outlinelevel=1, text="Report 2026"))
    document.text.addElement(odftext.P(text="Sales were 4250.75 EUR."))
    items = odftext.List()
    for text in ("First 11", "Second 22"):
        item = odftext.ListItem()
        item.addElement(odftext.P(text=text))
        items.addElement(item)
    document.text.addElement(items)
    table = odftable.Table(name="T")
    for row in [["Item", "Price"], ["Bolt", "36.50"]]:
        line = odftable.TableRow()
        for value in row:
            cell = odftable.TableCell()
            cell.addElement(odftext.P(text=value))
            line.addElement(cell)
        table.addElement(line)
    document.text.addElement(table)
    noted = odftext.P(text="A claim")
    note = odftext.Note(noteclass="footnote")
    note.addElement(odftext.NoteCitation(text="1"))
    body = odftext.NoteBody()
    body.addElement(odftext.P(text="Its source 77"))
    note.addElement(body)
    noted.addElement(note)
    document.text.addElement(noted)
    case("office", "text.odt", kept_open(document), "Report 2026\nSales were 4250.75 EUR.\n- First 11\n- Second 22\nItem Price\nBolt 36.50\nA claim [Its source 77]")
    layout = PageLayout(name="L")
    document = OpenDocumentText()
    document.automaticstyles.addElement(layout)
    master = MasterPage(name="Standard", pagelayoutname="L")
    from odf.style import Footer, Header
    header, footer = Header(), Footer()
    header.addElement(odftext.P(text="ACME 2026"))
    footer.addElement(odftext.P(text="Confidential 7"))
    master.addElement(header)
    master.addElement(footer)
    document.masterstyles.addElement(master)
    document.text.addElement(odftext.P(text="Body 42"))
    case("office", "header-and-footer.odt", kept_open(document), "ACME 2026\nBody 42\nConfidential 7")
    sheet = OpenDocumentSpreadsheet()
    table = odftable.Table(name="Prices")
    for row in [[("string", "Item"), ("string", "Price")], [("string", "Bolt"), ("float", "36.5")]]:
        line = odftable.TableRow()
        for kind, value in row:
            cell = odftable.TableCell(valuetype=kind, **({"value": value} if kind == "float" else {}))
            cell.addElement(odftext.P(text=value))
            line.addElement(cell)
        table.addElement(line)
    sheet.spreadsheet.addElement(table)
    case("office", "sheet.ods", kept_open(sheet), "Prices\nItem Price\nBolt 36.5")
    show = OpenDocumentPresentation()
    layout = PageLayout(name="L")
    show.automaticstyles.addElement(layout)
    show.masterstyles.addElement(MasterPage(name="M", pagelayoutname="L"))
    page = odfdraw.Page(masterpagename="M", name="p1")
    frame = odfdraw.Frame(width="10cm", height="5cm")
    box = odfdraw.TextBox()
    box.addElement(odftext.P(text="Slide 42 shows"))
    frame.addElement(box)
    page.addElement(frame)
    show.presentation.addElement(page)
    case("office", "slides.odp", kept_open(show), "Slide 42 shows")


def of_libreoffice() -> None:
    document = docx.Document()
    document.add_heading("Report 2026", 1)
    document.add_paragraph("Größe: 4250.75 €, naïve “quotes”")
    for text in ("First 11", "Second 22"):
        document.add_paragraph(text, style="List Number")
    table = document.add_table(rows=2, cols=2)
    for cell, value in zip([*table.rows[0].cells, *table.rows[1].cells], ["Item", "Price", "Bolt", "36.50"]):
        cell.text = value
    out = io.BytesIO()
    document.save(out)
    source = out.getvalue()
    right = "Report 2026\nGröße: 4250.75 €, naïve “quotes”\n1. First 11\n2. Second 22\nItem Price\nBolt 36.50"
    case("office", "libreoffice.pdf", libreoffice(source, ".docx", "pdf"), right)
    case("office", "libreoffice.odt", repacked(libreoffice(source, ".docx", "odt")), right)
    case("office", "libreoffice.rtf", libreoffice(source, ".docx", "rtf"), right)
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["Item", "Price", "Date"])
    sheet.append(["Bolt", 36.5, datetime.date(2026, 3, 31)])
    sheet["B2"].number_format = "#,##0.00"
    sheet["B3"] = "=B2*2"
    sheet.column_dimensions["C"].width = 20
    out = io.BytesIO()
    book.save(out)
    case("office", "libreoffice.ods", repacked(libreoffice(out.getvalue(), ".xlsx", "ods")), "Sheet\nItem Price Date\nBolt 36.50 2026-03-31\n73")
    case("office", "libreoffice-sheet.pdf", libreoffice(out.getvalue(), ".xlsx", "pdf"), "Item Price Date\nBolt 36.50 2026-03-31\n73")
    case("office", "libreoffice-old.doc", libreoffice(source, ".docx", "doc")[:4096], "", error="unsupported_file")
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text = "Results 2026"
    slide.placeholders[1].text = "Revenue 4250.75"
    slide.notes_slide.notes_text_frame.text = "Say 99 slowly"
    out = io.BytesIO()
    show.save(out)
    case("office", "libreoffice.odp", repacked(libreoffice(out.getvalue(), ".pptx", "odp")), "Results 2026\nRevenue 4250.75\nNotes: Say 99 slowly")


def rtf() -> None:
    table = r"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0 Arial;}}\f0 \trowd\cellx2000\cellx4000 Item\cell Price\cell\row \trowd\cellx2000\cellx4000 Bolt\cell 36.50\cell\row \pard Caf\'e9 \u8364?12\par}"
    case("office", "table.rtf", table.encode(), "Item Price\nBolt 36.50\nCafé €12")
    russian = "{\\rtf1\\ansi\\ansicpg1251 " + "".join(f"\\'{byte:02x}" for byte in "Счёт 42".encode("cp1251")) + "\\par}"
    case("office", "cyrillic.rtf", russian.encode(), "Счёт 42")
    footnote = r"{\rtf1\ansi{\header Head 2026\par}Claim{\footnote Source 77}. {\*\bkmkstart a}End\emdash 5\par}"
    case("office", "footnote.rtf", footnote.encode(), "Head 2026\nClaim [Source 77].\nEnd—5")


def made() -> None:
    documents()
    workbooks()
    slides()
    open_documents()
    of_libreoffice()
    rtf()
