import { textOf } from "@responses-edge/file-text";
import { describe, expect, it } from "vitest";

const read = async (base64: string, mimeType = "text/plain") => {
  const [page] = await Array.fromAsync(textOf(Uint8Array.fromBase64(base64), { filename: "a.txt", mimeType }));
  return page?.text ?? "";
};

/** The note before a text whose encoding is only a guess. */
const NOTE = /^\[This text does not say its encoding\. It was read as [\w-]+\.\]\n/;

describe("a text that does not say its encoding", () => {
  it.each([
    [
      "cp1251",
      "Счёт-фактура № 42 от 3 марта. Итого к оплате: 4250 рублей, включая НДС.",
      "0fe48i304Ory8/DgILkgNDIg7vIgMyDs4PDy4C4gyPLu4+4g6iDu7+vg8uU6IDQyNTAg8PPh6+XpLCDi6uv+9+D/IM3E0S4=",
    ],
    [
      "koi8-u",
      "Рахунок за березень: усього 4250 гривень. Дякуємо за співпрацю!",
      "8sHI1c7PyyDawSDCxdLF2sXO2Dog1dPYz8fPIDQyNTAgx9LJ18XO2C4g5NHL1aTNzyDawSDT0KbX0NLBw8Ah",
    ],
    [
      "shift_jis",
      "請求書 42号、合計金額は三百円です。お支払い期限は十二月末日となります。",
      "kL+LgY+RIDQyjYaBQY2HjHaL4Ip6gs2OT5VTiX6CxYK3gUKCqI54laWCoor6jMCCzY9ck/GMjpaWk/qCxoLIguiC3IK3gUI=",
    ],
    [
      "euc-jp",
      "請求書 42号、合計金額は三百円です。お支払い期限は十二月末日となります。",
      "wMG14b3xIDQyueahornnt9e24rPbpM+7sMm0sd+kx6S5oaOkqrvZyqekpLT8uMKkz729xvO37sv2xvykyKTKpOqk3qS5oaM=",
    ],
    [
      "iso2022-jp",
      "請求書 42号、合計金額は三百円です。お支払い期限は十二月末日となります。",
      "GyRCQEE1YT1xGyhCIDQyGyRCOWYhIjlnN1c2YjNbJE87MEk0MV8kRyQ5ISMkKjtZSickJDR8OEIkTz09RnM3bkt2RnwkSCRKJGokXiQ5ISMbKEI=",
    ],
    [
      "gbk",
      "发票号码：42，合计金额为四千二百五十元整。付款期限为十二月底。",
      "t6LGsbrFwuujujQyo6y6z7zGvfC27s6qy8THp7b+sNnO5cqu1KrV+6GjuLa/7sbaz97Oqsqutv7UwrXXoaM=",
    ],
    [
      "big5",
      "發票號碼：42，合計金額為四千二百五十元整。付款期限為十二月底。",
      "tW+yvLi5vVihRzQyoUGmWK1wqvfDQqywpXykZKRHpsqkraRRpLi+46FDpUm02rTBra2ssKRRpEek66mzoUM=",
    ],
    [
      "euc-kr",
      "청구서 42호, 합계 금액은 사천이백오십 원입니다. 지급 기한은 십이월 말일입니다.",
      "w7uxuLytIDQyyKMsIMfVsOggsd2+18C6ILvnw7XAzLnpv8C9yiC/+MDUtM+02S4gwfax3iCx4sfRwLogvcrAzL/5ILi7wM/A1LTPtNku",
    ],
    [
      "cp1253",
      "Τιμολόγιο 42, σύνολο πληρωμής τετρακόσια πενήντα ευρώ. Ευχαριστούμε πολύ.",
      "1Ons7+v84+nvIDQyLCDz/e3v6+8g8Ovn8fns3vIg9OX08eHq/PPp4SDw5e3e7fThIOX18f4uIMX19+Hx6fP07/3s5SDw7+v9Lg==",
    ],
    [
      "cp1255",
      "חשבונית מספר 42, סך הכל לתשלום ארבע מאות וחמישים שקלים. תודה רבה.",
      "5/nh5fDp+iDu8fT4IDQyLCDx6iDk6+wg7Pr57OXtIOD44fIg7uDl+iDl5+7p+entIPn37OntLiD65ePkIPjh5C4=",
    ],
    [
      "cp1256",
      "فاتورة رقم 42، المجموع الكلي أربعمائة وخمسون يورو. شكرا جزيلا لكم.",
      "3cfK5tHJINHe4yA0MqEgx+HjzOPm2iDH4d/h7SDD0cja48fGySDmzuPT5uQg7ebR5i4g1N/RxyDM0u3hxyDh3+Mu",
    ],
    [
      "cp1254",
      "Fatura numarası 42, toplam tutar dört yüz elli lira. Teşekkür ederiz, iyi günler.",
      "RmF0dXJhIG51bWFyYXP9IDQyLCB0b3BsYW0gdHV0YXIgZPZydCB5/HogZWxsaSBsaXJhLiBUZf5la2v8ciBlZGVyaXosIGl5aSBn/G5sZXIu",
    ],
    [
      "cp1250",
      "Faktura numer 42, łączna kwota do zapłaty czterysta pięćdziesiąt złotych. Dziękujemy.",
      "RmFrdHVyYSBudW1lciA0Miwgs7ljem5hIGt3b3RhIGRvIHphcLNhdHkgY3p0ZXJ5c3RhIHBp6uZkemllc2m5dCB6s290eWNoLiBEemnqa3VqZW15Lg==",
    ],
    [
      "iso8859-2",
      "Faktura numer 42, łączna kwota do zapłaty czterysta pięćdziesiąt złotych. Dziękujemy.",
      "RmFrdHVyYSBudW1lciA0Miwgs7Fjem5hIGt3b3RhIGRvIHphcLNhdHkgY3p0ZXJ5c3RhIHBp6uZkemllc2mxdCB6s290eWNoLiBEemnqa3VqZW15Lg==",
    ],
    [
      "cp1252",
      "Facture numéro 42, montant total à régler : quatre cent cinquante euros. Merci d'être venus à Orléans.",
      "RmFjdHVyZSBudW3pcm8gNDIsIG1vbnRhbnQgdG90YWwg4CBy6WdsZXIgOiBxdWF0cmUgY2VudCBjaW5xdWFudGUgZXVyb3MuIE1lcmNpIGQn6nRyZSB2ZW51cyDgIE9ybOlhbnMu",
    ],
    [
      "cp874",
      "ใบแจ้งหนี้เลขที่ 42 ยอดรวมสี่ร้อยห้าสิบบาท ขอบคุณมาก",
      "47rhqOmny7nV6eDForfV6CA0MiDCzbTDx8HK1ejD6c3Cy+nSytS6utK3IKLNuqTYs8HSoQ==",
    ],
    [
      "cp1257",
      "Sąskaita faktūra numeris 42, bendra suma keturi šimtai penkiasdešimt eurų. Ačiū už bendradarbiavimą.",
      "U+Bza2FpdGEgZmFrdPtyYSBudW1lcmlzIDQyLCBiZW5kcmEgc3VtYSBrZXR1cmkg8GltdGFpIHBlbmtpYXNkZfBpbXQgZXVy+C4gQehp+yB1/iBiZW5kcmFkYXJiaWF2aW3gLg==",
    ],
    ["utf-16-le", "a,b\ncafé,3\n", "YQAsAGIACgBjAGEAZgDpACwAMwAKAA=="],
    ["utf-16-be", "a,b\ncafé,3\n", "AGEALABiAAoAYwBhAGYA6QAsADMACg=="],
  ])("is read in %s", async (_, text, base64) => {
    expect((await read(base64)).replace(NOTE, "")).toBe(text);
  });

  it("says which one was guessed, where other ones would fit", async () => {
    // "café" in Windows' western encoding.
    expect(await read("Y2Fm6Q==")).toMatch(NOTE);
    // Shift_JIS has a form.
    expect(await read("k/qWe4zqgsyDZYNMg1iDZ4LFgreBQg==")).not.toMatch(NOTE);
  });
});

describe("a text that says its encoding", () => {
  it("is read in it, and without a note", async () => {
    expect(await read("Y2Fm6Q==", "text/plain; charset=windows-1252")).toBe("café");
    expect(await read("Y2Fm6Q==", 'text/csv;charset="ISO-8859-1"')).toBe("café");
    expect(await read("YQBiAA==", "text/csv;charset=utf-16le")).toBe("ab");
  });

  it("is read as UTF-8 where it is that, whatever it says", async () => {
    expect(await read("Y2Fmw6k=", "text/plain; charset=iso-8859-1")).toBe("café");
  });
});
