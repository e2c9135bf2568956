/** Codex's grammar for patches, word for word (openai/codex, `apply_patch.lark`). */
export const APPLY_PATCH = `start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
`;

const PATCH = `*** Begin Patch
*** Update File: a.py
*** Move to: b.py
@@ def f():
-x
+y <| z
 same
*** End of File
*** Add File: c
+1
+
*** Delete File: d
*** End Patch
`;

const ARITHMETIC = `start: expr
expr: term (SP ADD SP term)* -> add
    | term
term: factor (SP MUL SP factor)* -> mul
    | factor
factor: INT
SP: " "
ADD: "+"
MUL: "*"
%import common.INT
`;

const LET = `%import common (WS, INT, CNAME)
%ignore WS
start: "let" CNAME "=" value ";"
?value: INT | "(" value ("," value)* ")"
`;

/** A grammar, and texts that it admits and refuses: what xgrammar 0.2.8 said of them under the EBNF that it becomes. */
export type GrammarCase = [definition: string, admitted: string[], refused: string[]];

export const LARK_CASES: GrammarCase[] = [
  [
    APPLY_PATCH,
    [PATCH, PATCH.trimEnd()],
    ["", "*** Begin Patch\n*** End Patch", `${PATCH}x`, PATCH.replace("+y", "y")],
  ],
  [ARITHMETIC, ["4", "4 + 4", "1 * 2 + 33"], ["4+4", "1 *", ""]],
  // Ignored text may follow any token, but not precede the first.
  [LET, ["let x = 1 ;  ", "let  x=(1,2);\n", "letx=1;"], [" let x=1;", "let x=1 2;", "let x=1"]],
  ['start: "a"i ["b"] "c"~2 ("d"|"e")~1..3', ["Abccde", "acce", "accddd"], ["aBccd", "accdedd", "acc"]],
  ["start: NUMBER\n%import common.SIGNED_NUMBER -> NUMBER", ["1", "-1.5e3", "+.5", "1."], ["e", "", "1.2.3"]],
  ["start: A\n%import common.ESCAPED_STRING -> A", ['"a"', '"a\\"b"', '""'], ['"a', '"a"b"', '"a\nb"']],
  ["start: A+\n%import common.C_COMMENT -> A", ["/* a ** b */", "/**//***/"], ["/* a */ */", "/* a"]],
  ['start: A\nA: "a".."f" B+\nB: /[0-9]/ | "_"', ["a1", "b_2"], ["g1", "a"]],
  // A rule may have the name of EBNF's own first one.
  ['start: root "z"\nroot: "x" root | "y"', ["xxyz", "yz"], ["x", "xy"]],
  ['start: start "a" | "b"', ["b", "baa"], ["a", "ab"]],
  ['start: (("a"?)*)*', ["", "aaa"], ["b"]],
  ['start:\n  | "a"', ["", "a"], ["b"]],
  ['start: (\n "a"\n | "b"\n)+ // a comment\n# and another\n', ["ab"], ["", "c"]],
  ['start: "\\u00e4\\n\\t\\"\\\\" /\\//', ['ä\n\t"\\/'], ["x"]],
  ['start: "é😀" /[é-ü]/ /[^a]/', ["é😀êb", "é😀ê😀"], ["é😀êa", "é😀xb"]],
  ["start: /a.c/s /(?i)xy/ /[[:digit:]]+/", ["a\ncXy12"], ["abcxy", "abxy1"]],
  ['start: x{2,3}\nx: "a"', ["aa", "aaa"], ["a", "aaaa"]],
  ["start: /[-^\\]\\[]+/ /[^-^]/", ["-^][a", "]-b"], ["a", "-^"]],
  ['?start.2: x | y\n!x.-1: "a"\n?y: "b" -> c', ["a", "b"], ["c"]],
];

export const REGEX_CASES: GrammarCase[] = [
  ["^\\d{4}-\\d{2}-\\d{2}$", ["2024-01-02"], ["2024-1-2", "x2024-01-02"]],
  ["^(?P<month>Jan|Feb)\\s+(\\d+)$", ["Jan  3", "Feb\t12"], ["March 3", "Jan3"]],
  ["(?i)select .*", ["SELECT x", "select "], ["insert", "selectx"]],
  ["a|^b$|c", ["a", "b", "c"], ["ab", ""]],
  ['a"b\\\\c', ['a"b\\c'], ["abc"]],
  ["[\\w.+-]+@[\\w-]+\\.com", ["a.b@c.com"], ["a@b", "a@b,com"]],
  // As a whole, a lazy quantifier matches what any does.
  ["(a|b)*?c", ["abc", "c"], ["ab"]],
  ["a{,3}", ["", "aaa"], ["aaaa"]],
  ["x{a}", ["x{a}"], ["xa"]],
  ["[]a]+", ["]a"], ["b"]],
  ["\\x41\\u00e4\\x{1F600}", ["Aä😀"], ["A"]],
  ["(^a|b)c", ["ac", "bc"], ["c"]],
  ["", [""], ["a"]],
  ["[\\s\\S]*", ['a\n"\\', ""], []],
  ["(?s:.)(?-s:.)(?i:é)", ["\nxÉ", "xxé"], ["x\né"]],
];
