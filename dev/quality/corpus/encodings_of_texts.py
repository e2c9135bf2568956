"""Texts in the encodings of the web."""
from __future__ import annotations

from case import case

GERMAN = "Rechnung 42;Größe;Übermaß\nSchrauben;120;36,50 €\nGesamtbetrag für Müller & Söhne;4250,75"
LATIN = "Facture numéro 42\nmontant total à régler : 4250,75\nà Orléans, où l'été s'achève"
RUSSIAN = "Счёт-фактура № 42 от 3 марта.\nИтого к оплате: 4250 рублей, включая НДС."
UKRAINIAN = "Рахунок за березень: усього 4250 гривень.\nДякуємо за співпрацю, її та ґанок!"
JAPANESE = "請求書 42号、合計金額は 4250 円です。\nお支払い期限は十二月末日となります。"
CHINESE = "发票号码：42，合计金额为 4250 元整。\n付款期限为十二月底，请按时付款。"
TRADITIONAL = "發票號碼：42，合計金額為 4250 元整。\n付款期限為十二月底，請按時付款。"
KOREAN = "청구서 42호, 합계 금액은 4250 원입니다.\n지급 기한은 십이월 말일입니다."
POLISH = "Faktura numer 42, łączna kwota do zapłaty 4250 złotych.\nDziękujemy za zaufanie, żółć gęślą jaźń."
CZECH = "Faktura číslo 42, celková částka k úhradě 4250 korun.\nPříliš žluťoučký kůň úpěl ďábelské ódy."
GREEK = "Τιμολόγιο 42, σύνολο πληρωμής 4250 ευρώ.\nΕυχαριστούμε πολύ για την προτίμηση."
TURKISH = "Fatura numarası 42, toplam tutar 4250 lira.\nTeşekkür ederiz, iyi günler, ağır ışık."
HEBREW = "חשבונית מספר 42, סך הכל לתשלום 4250 שקלים.\nתודה רבה ולהתראות."
ARABIC = "فاتورة رقم 42، المجموع الكلي 4250 يورو.\nشكرا جزيلا لكم على التعامل معنا."
THAI = "ใบแจ้งหนี้เลขที่ 42 ยอดรวม 4250 บาท\nขอบคุณมากที่ใช้บริการของเรา"
VIETNAMESE = "Hóa đơn số 42, tổng cộng 4250 đồng.\nXin cảm ơn quý khách."
BALTIC = "Sąskaita faktūra numeris 42, bendra suma 4250 eurų.\nAčiū už bendradarbiavimą."


# Encodings in which other words are as probable: the guess is told.
UNSURE = ("iso8859-2", "mac_roman", "cp866")


def made() -> None:
    def add(name: str, data: bytes, text: str, mime: str | None = "text/plain", told: str = "", unsure: bool = False, extension: str = "txt") -> None:
        case("encodings", f"{name}.{extension}", data, text, mime=mime, told=[told] if told else [], unsure=unsure)

    # By the byte order mark.
    for name, bom, codec in [("utf-8", b"\xef\xbb\xbf", "utf-8"), ("utf-16le", b"\xff\xfe", "utf-16-le"), ("utf-16be", b"\xfe\xff", "utf-16-be"),
                             ("utf-32le", b"\xff\xfe\0\0", "utf-32-le"), ("utf-32be", b"\0\0\xfe\xff", "utf-32-be")]:
        add(f"{name}-bom", bom + GERMAN.encode(codec), GERMAN, "text/csv", extension="csv")
        add(f"{name}-bom-russian", bom + RUSSIAN.encode(codec), RUSSIAN)
    # Without one, and undeclared.
    for codec in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        add(f"{codec}-plain", GERMAN.encode(codec), GERMAN, "text/csv", extension="csv")
    for codec in ("utf-16-le", "utf-16-be"):
        add(f"{codec}-japanese", JAPANESE.encode(codec), JAPANESE)
        add(f"{codec}-cyrillic", RUSSIAN.encode(codec), RUSSIAN)
    # Declared by the media type.
    for codec, label, text in [
        ("cp1252", "windows-1252", GERMAN), ("latin-1", "iso-8859-1", LATIN), ("iso8859-15", "iso-8859-15", GERMAN), ("cp1251", "windows-1251", RUSSIAN),
        ("koi8-r", "koi8-r", RUSSIAN.replace("№", "N")), ("koi8-u", "koi8-u", UKRAINIAN), ("iso8859-5", "iso-8859-5", RUSSIAN), ("cp866", "ibm866", RUSSIAN),
        ("cp1250", "windows-1250", POLISH), ("iso8859-2", "iso-8859-2", CZECH), ("cp1253", "windows-1253", GREEK), ("iso8859-7", "iso-8859-7", GREEK),
        ("cp1254", "windows-1254", TURKISH), ("iso8859-9", "iso-8859-9", TURKISH), ("cp1255", "windows-1255", HEBREW), ("iso8859-8", "iso-8859-8", HEBREW),
        ("cp1256", "windows-1256", ARABIC), ("iso8859-6", "iso-8859-6", ARABIC), ("cp1257", "windows-1257", BALTIC), ("iso8859-13", "iso-8859-13", BALTIC),
        ("cp874", "windows-874", THAI), ("mac_roman", "macintosh", GERMAN), ("mac_cyrillic", "x-mac-cyrillic", RUSSIAN), ("shift_jis", "shift_jis", JAPANESE),
        ("euc_jp", "euc-jp", JAPANESE), ("iso2022_jp", "iso-2022-jp", JAPANESE), ("gbk", "gbk", CHINESE), ("gb18030", "gb18030", CHINESE), ("big5", "big5", TRADITIONAL),
        ("euc_kr", "euc-kr", KOREAN), ("utf-16-le", "utf-16le", VIETNAMESE), ("utf-16-be", "utf-16be", VIETNAMESE), ("utf-32-le", "utf-32le", VIETNAMESE),
        ("utf-32-be", "utf-32", VIETNAMESE), ("utf-7", "utf-7", VIETNAMESE),
    ]:
        unread = f"[This text says that it is in {label}, which cannot be read." if label == "utf-7" else ""
        add(f"declared-{label}", text.encode(codec), text, f"text/plain; charset={label}", told=unread, unsure=unread != "")
    # By a guess. Texts in one-byte encodings say that it is one.
    for codec, text, told in [
        ("cp1252", LATIN, True), ("cp1251", RUSSIAN, True), ("koi8-r", RUSSIAN.replace("№", "N"), True), ("koi8-u", UKRAINIAN, True), ("cp1250", POLISH, True), ("iso8859-2", CZECH, True),
        ("cp1253", GREEK, True), ("cp1254", TURKISH, True), ("cp1255", HEBREW, True), ("cp1256", ARABIC, True), ("cp874", THAI, True), ("mac_roman", LATIN, True), ("cp866", RUSSIAN, True), ("iso8859-5", RUSSIAN, True),
        ("shift_jis", JAPANESE, False), ("euc_jp", JAPANESE, False), ("iso2022_jp", JAPANESE, False), ("gbk", CHINESE, False), ("gb18030", CHINESE + "𠮷", False), ("big5", TRADITIONAL, False), ("euc_kr", KOREAN, False),
    ]:
        add(f"guessed-{codec}", text.encode(codec), text, told="[This text does not say its encoding." if told else "", unsure=codec in UNSURE)
    # Charsets that pages declare in themselves.
    for codec, label, text in [("cp1251", "windows-1251", RUSSIAN), ("shift_jis", "Shift_JIS", JAPANESE), ("gbk", "gb2312", CHINESE), ("euc_kr", "euc-kr", KOREAN)]:
        page = f'<!doctype html><html><head><meta http-equiv="Content-Type" content="text/html; charset={label}"></head><body><p>{text}</p></body></html>'
        case("encodings", f"page-{label}.html", page.encode(codec), text, mime="text/html")
    # Wrong declarations: UTF-8 that is called something else.
    add("utf-8-called-latin-1", GERMAN.encode(), GERMAN, "text/plain; charset=iso-8859-1")
    add("cp1252-called-utf-8", LATIN.encode("cp1252"), LATIN, "text/plain; charset=utf-8", told="[This text is not in utf-8, as it says.")
