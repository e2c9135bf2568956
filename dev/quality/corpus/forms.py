"""Forms and annotations of PDFs."""
from __future__ import annotations

import io

import pymupdf as fitz
import pikepdf
import pypdf

from case import case
from pdfs import canvas, raw, saved

LABELS = ["Surname:", "Country:", "I agree:", "Newsletter:", "Payment:"]


def reportlab_form(filled: bool) -> bytes:
    def draw(page):
        page.setFont("Helvetica", 11)
        for index, label in enumerate(LABELS):
            page.drawString(72, 740 - 40 * index, label)
        form = page.acroForm
        form.textfield(name="surname", x=160, y=734, width=160, height=20, value="Lindqvist-7731" if filled else "", relative=False)
        form.choice(name="country", x=160, y=694, width=100, height=20, options=["FR", "NO", "SE"], value="NO" if filled else "FR", relative=False)
        form.checkbox(name="agree", x=160, y=656, size=16, checked=filled)
        form.checkbox(name="news", x=160, y=616, size=16, checked=False)
        page.drawString(180, 580, "card")
        page.drawString(260, 580, "bill")
        form.radio(name="pay", value="card", x=160, y=576, size=16, selected=False)
        form.radio(name="pay", value="bill", x=240, y=576, size=16, selected=filled)
        page.showPage()
    return canvas(draw)


def widgets(texts, fields, *, need=True, page_entries="") -> bytes:
    """A form without appearances: `fields` are annotations as PDF syntax."""
    content = b"".join(b"BT /F1 11 Tf %d %d Td (%s) Tj ET " % (x, y, text.encode()) for x, y, text in texts)
    pdf = raw(content)
    made = [pdf.make_indirect(pikepdf.Object.parse(each.encode())) for each in fields]
    pdf.pages[0].obj.Annots = pikepdf.Array(made)
    pdf.Root.AcroForm = pikepdf.Dictionary(Fields=pikepdf.Array(made), NeedAppearances=need)
    return saved(pdf)


def made() -> None:
    case("forms", "reportlab-filled.pdf", reportlab_form(True), "Surname: Lindqvist-7731\nCountry: NO\nI agree: [x]\nNewsletter: [ ]\nPayment: [ ] card [x] bill")
    case("forms", "reportlab-empty.pdf", reportlab_form(False), "Surname:\nCountry: FR\nI agree: [ ]\nNewsletter: [ ]\nPayment: [ ] card [ ] bill")
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(reportlab_form(False)))
    writer.update_page_form_field_values(writer.pages[0], {"surname": "Berg-4412", "agree": "/Yes"}, auto_regenerate=False)
    out = io.BytesIO()
    writer.write(out)
    case("forms", "pypdf-filled.pdf", out.getvalue(), "Surname: Berg-4412\nCountry: FR\nI agree: [x]\nNewsletter: [ ]\nPayment: [ ] card [ ] bill")
    document = fitz.open()
    page = document.new_page()
    for y, label, kind, value in [(100, "Name", fitz.PDF_WIDGET_TYPE_TEXT, "Åsa Ö. 5521"), (140, "Accept", fitz.PDF_WIDGET_TYPE_CHECKBOX, True), (180, "Colour", fitz.PDF_WIDGET_TYPE_COMBOBOX, "Green")]:
        page.insert_text((72, y), label)
        widget = fitz.Widget()
        widget.field_name, widget.field_type, widget.rect = label.lower(), kind, fitz.Rect(150, y - 14, 300, y + 4)
        if kind == fitz.PDF_WIDGET_TYPE_COMBOBOX:
            widget.choice_values = ["Red", "Green", "Blue"]
        widget.field_value = value
        page.add_widget(widget)
    document.set_metadata({})
    case("forms", "pymupdf-filled.pdf", document.tobytes(deflate=True, garbage=3), "Name Åsa Ö. 5521\nAccept [x]\nColour Green")

    text = lambda x, y, name, value, more="": f"<< /Type /Annot /Subtype /Widget /FT /Tx /T ({name}) /V {value} /Rect [{x} {y - 4} {x + 150} {y + 14}] {more} >>"
    case("forms", "no-appearance.pdf", widgets([(72, 700, "IBAN:"), (72, 660, "Amount:")], [text(150, 700, "iban", "(NO93 8601 1117 947)"), text(150, 660, "amount", "(4250.75)")]), "IBAN: NO93 8601 1117 947\nAmount: 4250.75")
    case("forms", "unicode-value.pdf", widgets([(72, 700, "Name:")], [text(150, 700, "n", "<FEFF041804320430043D00200034003200370037>")]), "Name: Иван 4277")
    case("forms", "multiline.pdf", widgets([(72, 700, "Note:")], [text(150, 700, "n", "(first 11\\nsecond 22)", "/Ff 4096")]), "Note: first 11\nsecond 22")
    case("forms", "comb.pdf", widgets([(72, 700, "Code:")], [text(150, 700, "n", "(778899)", "/Ff 16777216 /MaxLen 6")]), "Code: 778899")
    case("forms", "stream-value.pdf", widgets([(72, 700, "Long:")], [text(150, 700, "n", "(a value of 3 words)", "/RV (<body><p>a value</p></body>)")]), "Long: a value of 3 words")
    case("forms", "password-field.pdf", widgets([(72, 700, "Pin:")], [text(150, 700, "n", "(0000)", "/Ff 8192")]), "Pin: 0000")
    choice = lambda value, more: f"<< /Type /Annot /Subtype /Widget /FT /Ch /T (c) /V {value} /Rect [150 696 300 714] {more} >>"
    case("forms", "choice-export-values.pdf", widgets([(72, 700, "Country:")], [choice("(47)", "/Ff 131072 /Opt [[(47) (Norway)] [(46) (Sweden)]]")]), "Country: Norway")
    case("forms", "choice-several.pdf", widgets([(72, 700, "Days:")], [choice("[(Mon) (Fri)]", "/Ff 2097152 /Opt [(Mon) (Tue) (Fri)]")]), "Days: Mon, Fri")
    case("forms", "choice-edited.pdf", widgets([(72, 700, "City:")], [choice("(Tromso 9008)", "/Ff 393216 /Opt [(Oslo) (Bergen)]")]), "City: Tromso 9008")
    pdf = raw(b"BT /F1 11 Tf 72 700 Td (Size:) Tj ET BT /F1 11 Tf 172 700 Td (S) Tj ET BT /F1 11 Tf 222 700 Td (L) Tj ET BT /F1 11 Tf 72 660 Td (Twice:) Tj ET")
    parent = pdf.make_indirect(pikepdf.Object.parse(b"<< /FT /Btn /Ff 49152 /T (size) /V /L >>"))
    appearance = lambda name: pikepdf.Dictionary(N=pikepdf.Dictionary({f"/{name}": pdf.make_stream(b""), "/Off": pdf.make_stream(b"")}))
    kids = [pdf.make_indirect(pikepdf.Dictionary(Type=pikepdf.Name.Annot, Subtype=pikepdf.Name.Widget, Parent=parent, Rect=pikepdf.Array([x, 696, x + 14, 710]), AS=pikepdf.Name(f"/{state}"), AP=appearance(name))) for x, name, state in [(155, "S", "Off"), (205, "L", "L")]]
    parent.Kids = pikepdf.Array(kids)
    shared = pdf.make_indirect(pikepdf.Object.parse(b"<< /FT /Tx /T (twice) /V (61.75) >>"))
    both = [pdf.make_indirect(pikepdf.Dictionary(Type=pikepdf.Name.Annot, Subtype=pikepdf.Name.Widget, Parent=shared, Rect=pikepdf.Array([x, 656, x + 90, 672]))) for x in (150, 300)]
    shared.Kids = pikepdf.Array(both)
    pdf.pages[0].obj.Annots = pikepdf.Array(kids + both)
    pdf.Root.AcroForm = pikepdf.Dictionary(Fields=pikepdf.Array([parent, shared]))
    case("forms", "values-of-parents.pdf", saved(pdf), "Size: [ ] S [x] L\nTwice: 61.75 61.75")
    annotations()


def annotations() -> None:
    def add(name, draw, text):
        document = fitz.open()
        page = document.new_page()
        page.insert_text((72, 100), "See the list of 42 parts.")
        draw(page)
        document.set_metadata({})
        case("annotations", name, document.tobytes(deflate=True, garbage=3), text)
    add("free-text.pdf", lambda page: page.add_freetext_annot(fitz.Rect(72, 300, 300, 340), "REVIEWER NOTE 4711"), "See the list of 42 parts.\nREVIEWER NOTE 4711")
    add("sticky-note.pdf", lambda page: page.add_text_annot((300, 300), "Check the sum 77.10"), "See the list of 42 parts.\nCheck the sum 77.10")

    def highlight(page):
        mark = page.add_highlight_annot(fitz.Rect(72, 90, 200, 104))
        mark.set_info(content="Wrong: should be 43")
        mark.update()
    add("highlight-with-note.pdf", highlight, "See the list of 42 parts.\nWrong: should be 43")
    add("link.pdf", lambda page: page.insert_link({"kind": fitz.LINK_URI, "from": fitz.Rect(72, 88, 210, 104), "uri": "https://example.com/list?id=9921"}), "See the list of 42 parts. <https://example.com/list?id=9921>")
    add("link-inside.pdf", lambda page: page.insert_link({"kind": fitz.LINK_GOTO, "from": fitz.Rect(72, 88, 210, 104), "page": 0}), "See the list of 42 parts.")

    def stamp(page):
        page.add_stamp_annot(fitz.Rect(72, 300, 300, 340), stamp=0).set_info(content="Approved 2026-03-14")
    add("stamp-with-words.pdf", stamp, "See the list of 42 parts.\nApproved 2026-03-14")

    def placed(name, extra, text, told=None):
        pdf = raw(b"BT /F1 11 Tf 72 700 Td (See the list of 42 parts.) Tj ET")
        font = pikepdf.Object.parse(b"<< /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>")
        stream = pdf.make_stream(b"BT /F1 12 Tf 4 8 Td (STAMPED 8812) Tj ET", Type=pikepdf.Name.XObject, Subtype=pikepdf.Name.Form, BBox=pikepdf.Array([0, 0, 150, 30]), Resources=font)
        annotation = pikepdf.Object.parse(extra)
        if b"/Stamp" in extra or b"/Widget" in extra or b"/FreeText" in extra:
            annotation.AP = pikepdf.Dictionary(N=stream)
        pdf.pages[0].obj.Annots = pikepdf.Array([pdf.make_indirect(annotation)])
        case("annotations", name, saved(pdf), text, told=told)
    placed("stamp-appearance-only.pdf", b"<< /Type /Annot /Subtype /Stamp /Rect [72 500 222 530] >>", "See the list of 42 parts.\nSTAMPED 8812")
    placed("free-text-appearance-only.pdf", b"<< /Type /Annot /Subtype /FreeText /Rect [72 500 222 530] /DA (/F1 12 Tf) >>", "See the list of 42 parts.\nSTAMPED 8812")
    placed("hidden-note.pdf", b"<< /Type /Annot /Subtype /Text /F 2 /Rect [72 500 90 518] /Contents (hidden 1) >>", "See the list of 42 parts.")
    placed("file-attachment.pdf", b"<< /Type /Annot /Subtype /FileAttachment /Rect [72 500 90 518] /Contents (prices.csv) /FS << /Type /Filespec /F (prices.csv) >> >>", "See the list of 42 parts.\nprices.csv")
    placed("reply.pdf", b"<< /Type /Annot /Subtype /Text /Rect [72 500 90 518] /Contents (Done on day 12) /IRT << /Type /Annot >> >>", "See the list of 42 parts.\nDone on day 12")
