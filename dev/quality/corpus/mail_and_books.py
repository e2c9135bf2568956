"""Mails, and books."""
from __future__ import annotations

import io
from email.message import EmailMessage
from email.policy import SMTP

from ebooklib import epub

from case import case, repacked
from pdfs import INVOICE, canvas, lines

HEAD = "From: Ann Berg <ann@example.org>\nTo: Bo <bo@example.org>\nDate: 2026-03-14T09:30:00.000Z\nSubject: "


def mail(name: str, subject: str, text: str, build=None, **content) -> None:
    message = EmailMessage(policy=SMTP)
    message["From"], message["To"], message["Subject"] = "Ann Berg <ann@example.org>", "Bo <bo@example.org>", subject
    message["Date"] = "Sat, 14 Mar 2026 09:30:00 +0000"
    if content:
        message.set_content(**content)
    if build:
        build(message)
    data = message.as_bytes()
    boundary = message.get_boundary()
    if boundary:
        for index, part in enumerate(part for part in message.walk() if part.is_multipart()):
            if part.get_boundary():
                data = data.replace(part.get_boundary().encode(), f"=-=part-{index}".encode())
    told = ["[This text does not say its encoding."] if name == "attachments" else None
    case("mail", f"{name}.eml", data, f"{HEAD}{subject}\n{text}", mime="message/rfc822", told=told)


def made() -> None:
    def simple(text, **options):
        return lambda message: message.set_content(text, **options)
    mail("plain", "Order 42", "Please send 120 bolts for 36.50 EUR.", simple("Please send 120 bolts for 36.50 EUR.\n"))
    mail("quoted-printable", "Größe – Übersicht 7", "Grüße, 12 € für Müller.", simple("Grüße, 12 € für Müller.\n", cte="quoted-printable"))
    mail("base64", "請求書 42", "合計は 4250 円です。", simple("合計は 4250 円です。\n", cte="base64"))
    mail("iso-2022-jp", "Order 42", "合計は 4250 円です。", simple("合計は 4250 円です。\n", charset="iso-2022-jp"))
    mail("windows-1251", "Order 42", "Итого 4250 рублей.", simple("Итого 4250 рублей.\n", charset="windows-1251", cte="8bit"))

    def alternative(message):
        message.set_content("Plain form 11.\n")
        message.add_alternative("<p>Rich form 11.</p>", subtype="html")
    mail("alternative", "Order 42", "Plain form 11.", alternative)
    mail("html-only", "Order 42", "Head\nItem 12.50", simple("<h1>Head</h1><table><tr><td>Item</td><td>12.50</td></tr></table>", subtype="html"))

    def attachments(message):
        message.set_content("See both.\n")
        message.add_attachment(canvas(lines(*INVOICE)), maintype="application", subtype="pdf", filename="Rechnung März.pdf")
        message.add_attachment("a;b\n1;2.50\nGröße;3\n".encode("cp1252"), maintype="text", subtype="csv", filename="list.csv", params={"charset": "windows-1252"})
        message.add_attachment(b"\x89PNG\r\n\x1a\n" + bytes(20), maintype="image", subtype="png", filename="p.png")
    mail("attachments", "Order 42", "See both.\n[attachment: Rechnung März.pdf]\n" + "\n".join(INVOICE) + "\n[attachment: list.csv]\na;b\n1;2.50\nGröße;3\n[attachment: p.png]\n[It cannot be read: The file is an image: give it as input_image.]", attachments)

    def forwarded(message):
        inner = EmailMessage(policy=SMTP)
        inner["From"], inner["Subject"] = "Cy <cy@example.org>", "Inner 99"
        inner.set_content("The inner text 88.\n")
        message.set_content("As below.\n")
        message.add_attachment(inner)
    mail("forwarded", "Fwd: Inner", "As below.\n[attachment: unnamed]\nFrom: Cy <cy@example.org>\nSubject: Inner 99\nThe inner text 88.", forwarded)

    for version, name in ((2, "two"), (3, "three")):
        book = epub.EpubBook()
        book.set_identifier("id42")
        book.set_title("The Ledger")
        book.set_language("en")
        book.EPUB_VERSION = version
        chapters = []
        for number in (1, 2):
            chapter = epub.EpubHtml(title=f"Chapter {number}", file_name=f"c{number}.xhtml", lang="en", uid=f"c{number}")
            chapter.content = f"<h1>Chapter {number}</h1><p>It was {1000 + number} – Größe.</p><table><tr><td>Item</td><td>{number}.50</td></tr></table>"
            book.add_item(chapter)
            chapters.append(chapter)
        book.toc = chapters
        book.spine = chapters
        book.add_item(epub.EpubNcx())
        book.add_item(epub.EpubNav())
        out = io.BytesIO()
        epub.write_epub(out, book)
        case("books", f"epub-{name}.epub", repacked(out.getvalue()), "\n".join(f"Chapter {number}\nIt was {1000 + number} – Größe.\nItem {number}.50" for number in (1, 2)))
