/**
 * Character references of HTML: all numeric ones, and the names of HTML 4 with a few that came later. The two thousand
 * names of HTML 5 are nearly all mathematics that pages write as characters; an unknown name stays as it is.
 */

/** U+00A0 to U+00FF in order. These may also come without their semicolon (HTML standard §13.2.5.73). */
const LATIN_1 =
  "nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 sup3 acute micro " +
  "para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil " +
  "Egrave Eacute Ecirc Euml Igrave Iacute Icirc Iuml ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave " +
  "Uacute Ucirc Uuml Yacute THORN szlig agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml " +
  "igrave iacute icirc iuml eth ntilde ograve oacute ocirc otilde ouml divide oslash ugrave uacute ucirc uuml yacute " +
  "thorn yuml";

/** `name character` pairs. */
const OTHERS =
  "Alpha Α Beta Β Gamma Γ Delta Δ Epsilon Ε Zeta Ζ Eta Η Theta Θ Iota Ι Kappa Κ Lambda Λ Mu Μ Nu Ν Xi Ξ Omicron Ο Pi Π " +
  "Rho Ρ Sigma Σ Tau Τ Upsilon Υ Phi Φ Chi Χ Psi Ψ Omega Ω alpha α beta β gamma γ delta δ epsilon ε zeta ζ eta η " +
  "theta θ iota ι kappa κ lambda λ mu μ nu ν xi ξ omicron ο pi π rho ρ sigmaf ς sigma σ tau τ upsilon υ phi φ chi χ " +
  "psi ψ omega ω thetasym ϑ upsih ϒ piv ϖ OElig Œ oelig œ Scaron Š scaron š Yuml Ÿ fnof ƒ circ ˆ tilde ˜ ndash – " +
  "mdash — lsquo ‘ rsquo ’ sbquo ‚ ldquo “ rdquo ” bdquo „ dagger † Dagger ‡ bull • hellip … permil ‰ prime ′ Prime ″ " +
  "lsaquo ‹ rsaquo › oline ‾ frasl ⁄ euro € image ℑ weierp ℘ real ℜ trade ™ alefsym ℵ larr ← uarr ↑ rarr → darr ↓ " +
  "harr ↔ crarr ↵ lArr ⇐ uArr ⇑ rArr ⇒ dArr ⇓ hArr ⇔ forall ∀ part ∂ exist ∃ empty ∅ nabla ∇ isin ∈ notin ∉ ni ∋ " +
  "prod ∏ sum ∑ minus − lowast ∗ radic √ prop ∝ infin ∞ ang ∠ and ∧ or ∨ cap ∩ cup ∪ int ∫ there4 ∴ sim ∼ cong ≅ " +
  "asymp ≈ ne ≠ equiv ≡ le ≤ ge ≥ sub ⊂ sup ⊃ nsub ⊄ sube ⊆ supe ⊇ oplus ⊕ otimes ⊗ perp ⊥ sdot ⋅ lceil ⌈ rceil ⌉ " +
  "lfloor ⌊ rfloor ⌋ lang ⟨ rang ⟩ loz ◊ spades ♠ clubs ♣ hearts ♥ diams ♦ apos ' num # dollar $ percnt % lpar ( " +
  "rpar ) ast * plus + comma , period . sol / colon : semi ; equals = quest ? commat @ lsqb [ lbrack [ bsol \\ rsqb ] " +
  "rbrack ] lowbar _ grave ` lcub { lbrace { verbar | vert | rcub } rbrace } excl ! check ✓ star ☆ starf ★ phone ☎ " +
  "hyphen ‐ horbar ― Tab \t NewLine \n";

const LEGACY = new Map<string, string>([
  ["amp", "&"],
  ["AMP", "&"],
  ["lt", "<"],
  ["LT", "<"],
  ["gt", ">"],
  ["GT", ">"],
  ["quot", '"'],
  ["QUOT", '"'],
  ...LATIN_1.split(" ").map((name, index): [string, string] => [name, String.fromCharCode(0xa0 + index)]),
]);

const NAMED = new Map<string, string>([
  ...LEGACY,
  ["ensp", "\u2002"],
  ["emsp", "\u2003"],
  ["thinsp", "\u2009"],
  ["zwnj", "\u200c"],
  ["zwj", "\u200d"],
  ["lrm", "\u200e"],
  ["rlm", "\u200f"],
  ...pairs(OTHERS),
]);

function pairs(list: string): [string, string][] {
  const words = list.split(" ");
  const found: [string, string][] = [];
  for (let index = 0; index + 1 < words.length; index += 2) found.push([words[index] ?? "", words[index + 1] ?? ""]);
  return found;
}

/** The characters for which numeric references to C1 controls stand (the standard's table, which is windows-1252). */
const C1 = "€\u0081‚ƒ„…†‡ˆ‰Š‹Œ\u008dŽ\u008f\u0090‘’“”•–—˜™š›œ\u009džŸ";

const REFERENCE = /&(?:#(?:([0-9]+)|[xX]([0-9a-fA-F]+));?|([A-Za-z][A-Za-z0-9]{1,31})(;?))/g;

/** Decodes the references in text. */
export function decodeText(text: string): string {
  return text.includes("&") ? text.replace(REFERENCE, decodeReference) : text;
}

/** Decodes the references in an attribute's value, where `&copy=1` is part of an address and no ©. */
export function decodeAttribute(value: string): string {
  if (!value.includes("&")) return value;
  return value.replace(REFERENCE, (whole, decimal, hex, name, semicolon, offset: number) =>
    name !== undefined && semicolon === "" && value[offset + whole.length] === "="
      ? whole
      : decodeReference(whole, decimal, hex, name, semicolon),
  );
}

function decodeReference(whole: string, decimal?: string, hex?: string, name?: string, semicolon?: string): string {
  if (name !== undefined) return (semicolon ? NAMED : LEGACY).get(name) ?? whole;
  const code = decimal === undefined ? Number.parseInt(hex ?? "", 16) : Number(decimal);
  if (code >= 0x80 && code <= 0x9f) return C1[code - 0x80] ?? "";
  const isSurrogate = code >= 0xd800 && code <= 0xdfff;
  return code === 0 || code > 0x10ffff || isSurrogate ? "\ufffd" : String.fromCodePoint(code);
}
