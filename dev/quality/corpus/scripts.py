"""PDFs in many scripts, and with the predefined character maps of Chinese, Japanese and Korean fonts."""
from __future__ import annotations

import pikepdf
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont

from case import case
from pdfs import DEJAVU, NOTO, canvas, fpdf, lines, raw, saved
from producers import chromium

JAPANESE = "請求書の合計は 4250 円です"
CHINESE = "发票合计金额为 4250 元"
TRADITIONAL = "發票合計金額為 4250 元"
KOREAN = "청구서 합계는 4250 원입니다"

# Map, Python's codec, collection, font, text.
MAPS = [
    *[(name, "cp932", "Japan1", JAPANESE) for name in ("90ms-RKSJ-H", "90msp-RKSJ-H", "90pv-RKSJ-H", "90ms-RKSJ-V")],
    *[(name, "euc_jp", "Japan1", JAPANESE) for name in ("EUC-H", "EUC-V")],
    *[(name, "utf-16-be", "Japan1", JAPANESE) for name in ("UniJIS-UCS2-H", "UniJIS-UTF16-H", "UniJIS2004-UTF16-H", "UniJIS-UCS2-HW-H", "UniJIS-UTF16-V")],
    ("UniJIS-UTF32-H", "utf-32-be", "Japan1", JAPANESE), ("UniJIS-UTF8-H", "utf-8", "Japan1", JAPANESE),
    *[(name, "gb2312", "GB1", CHINESE) for name in ("GB-EUC-H", "GBpc-EUC-H")],
    *[(name, "gbk", "GB1", CHINESE) for name in ("GBK-EUC-H", "GBKp-EUC-H", "GBK-EUC-V")],
    ("GBK2K-H", "gb18030", "GB1", CHINESE),
    *[(name, "utf-16-be", "GB1", CHINESE) for name in ("UniGB-UCS2-H", "UniGB-UTF16-H", "UniGB-UCS2-V")],
    *[(name, "big5", "CNS1", TRADITIONAL) for name in ("B5pc-H", "ETen-B5-H", "ETenms-B5-H", "ETen-B5-V")],
    ("HKscs-B5-H", "big5hkscs", "CNS1", TRADITIONAL),
    *[(name, "utf-16-be", "CNS1", TRADITIONAL) for name in ("UniCNS-UCS2-H", "UniCNS-UTF16-H")],
    *[(name, "euc_kr", "Korea1", KOREAN) for name in ("KSC-EUC-H", "KSCpc-EUC-H")],
    *[(name, "cp949", "Korea1", KOREAN) for name in ("KSCms-UHC-H", "KSCms-UHC-HW-H", "KSCms-UHC-V")],
    *[(name, "utf-16-be", "Korea1", KOREAN) for name in ("UniKS-UCS2-H", "UniKS-UTF16-H")],
]

# Name, font, direction, lines.
SCRIPTS = [
    ("cyrillic", f"{DEJAVU}/DejaVuSans.ttf", ["Счёт-фактура № 42", "Итого к оплате: 4250,75 рублей"]),
    ("greek", f"{DEJAVU}/DejaVuSans.ttf", ["Τιμολόγιο 42", "Σύνολο πληρωμής: 4250,75 ευρώ"]),
    ("vietnamese", f"{DEJAVU}/DejaVuSans.ttf", ["Hóa đơn số 42", "Tổng cộng phải trả: 4250,75 đồng"]),
    ("polish", f"{DEJAVU}/DejaVuSans.ttf", ["Faktura numer 42", "Łączna kwota do zapłaty: 4250,75 złotych"]),
    ("turkish", f"{DEJAVU}/DejaVuSans.ttf", ["Fatura numarası 42", "Ödenecek toplam tutar: 4250,75 lira, iğne, ışık"]),
    ("armenian", f"{DEJAVU}/DejaVuSans.ttf", ["Հաշիվ 42", "Ընդամենը 4250 դրամ"]),
    ("georgian", f"{DEJAVU}/DejaVuSans.ttf", ["ანგარიში 42", "სულ 4250 ლარი"]),
    ("hebrew", f"{DEJAVU}/DejaVuSans.ttf", ["חשבונית מספר 42", "סך הכל לתשלום 4250 שקלים"]),
    ("arabic", f"{DEJAVU}/DejaVuSans.ttf", ["فاتورة رقم 42", "المجموع الكلي 4250 يورو"]),
    ("persian", f"{DEJAVU}/DejaVuSans.ttf", ["صورتحساب شماره 42", "جمع کل 4250 ریال"]),
    ("devanagari", f"{NOTO}/NotoSansDevanagari-Regular.ttf", ["चालान 42", "कुल राशि 4250 रुपये"]),
    ("thai", f"{NOTO}/NotoSansThai-Regular.ttf", ["ใบแจ้งหนี้ ๔๒", "ยอดรวม ๔๒๕๐ บาท"]),
]


def made() -> None:
    for name, codec, ordering, text in MAPS:
        before, after = b"BT /F1 10 Tf 72 740 Td (Invoice 42) Tj ET", b"BT /F1 10 Tf 72 400 Td (Thank you.) Tj ET"
        codes = text.encode(codec).hex().encode()
        x = 300 if name.endswith("V") else 72
        pdf = raw(before + b" BT /F2 14 Tf %d 700 Td <" % x + codes + b"> Tj ET " + after)
        descriptor = "<< /Type /FontDescriptor /FontName /X /Flags 4 /FontBBox [0 -200 1000 900] /ItalicAngle 0 /Ascent 800 /Descent -200 /CapHeight 700 /StemV 80 >>"
        pdf.pages[0].obj.Resources.Font.F2 = pikepdf.Object.parse(
            f"<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /{name} /DescendantFonts [<< /Type /Font /Subtype /CIDFontType0"
            f" /BaseFont /X /CIDSystemInfo << /Registry (Adobe) /Ordering ({ordering}) /Supplement 6 >> /FontDescriptor {descriptor} >>] >>".encode())
        case("cjk", f"{name}.pdf", saved(pdf), f"Invoice 42\n{text}\nThank you.")
    for font, text in {"HeiseiMin-W3": JAPANESE, "HeiseiKakuGo-W5": JAPANESE, "STSong-Light": CHINESE, "HYSMyeongJo-Medium": KOREAN, "HYGothic-Medium": KOREAN}.items():
        pdfmetrics.registerFont(UnicodeCIDFont(font))
        case("cjk", f"reportlab-{font}.pdf", canvas(lines(text, "4,250.75", font=font)), f"{text}\n4,250.75")

    for name, font, texts in SCRIPTS:
        def shaped(pdf):
            pdf.add_font("F", fname=font)
            pdf.set_font("F", size=14)
            pdf.set_text_shaping(True)
            for line in texts:
                pdf.cell(0, 12, line, new_x="LMARGIN", new_y="NEXT")
        case("scripts", f"fpdf2-{name}.pdf", fpdf(shaped), "\n".join(texts))
        direction = "rtl" if name in ("hebrew", "arabic", "persian") else "ltr"
        body = "".join(f"<p>{line}</p>" for line in texts)
        family = "Noto Sans Devanagari" if name == "devanagari" else "Noto Sans Thai" if name == "thai" else "DejaVu Sans"
        case("scripts", f"chromium-{name}.pdf", chromium(f"<meta charset=utf-8><body dir={direction} style='font-family:{family}'>{body}"), "\n".join(texts))
    table = "<table dir=rtl border=1><tr><td>פריט<td>כמות<td>מחיר<tr><td>בורג<td>120<td>36.50</table>"
    case("scripts", "chromium-hebrew-table.pdf", chromium(f"<meta charset=utf-8><body style='font-family:DejaVu Sans'>{table}"), "פריט כמות מחיר\nבורג 120 36.50")
    case("scripts", "chromium-hebrew-latin.pdf", chromium("<meta charset=utf-8><body dir=rtl style='font-family:DejaVu Sans'><p>הזמנה ABC-7731 מתאריך 14.3.2026 אושרה"), "הזמנה ABC-7731 מתאריך 14.3.2026 אושרה")
    case("scripts", "chromium-latin-arabic.pdf", chromium("<meta charset=utf-8><body style='font-family:DejaVu Sans'><p>The word سلام means peace, in 3 ways."), "The word سلام means peace, in 3 ways.")
