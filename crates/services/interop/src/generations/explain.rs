//! The rules that decided about a message, as they stood in its generation.

use std::fmt::Write as _;

/// Most lines of one rule that are shown.
const LINES_MAX: usize = 60;

/// Most rules that are shown.
const RULES_MAX: usize = 20;

/// The rules that a reason names (`main: adt, lab (not: orders)`), as they stand in the text of a file of rules, each with its line.
/// None where the reason names no rules of that file, such as that of a refusal.
pub fn rule_text(rules: &str, text: &str, reason: &str) -> Option<String> {
    let named = reason.strip_prefix(rules)?.strip_prefix(": ")?;
    // Behind the names stand those that did not hold, or what became of it.
    let held = named.split(" (not: ").next().unwrap_or(named);
    let held = held.split(": ").next().unwrap_or(held);
    let mut shown = String::new();
    for name in held.split(", ").take(RULES_MAX) {
        let Some((line, body)) = rule(text, name) else { continue };
        writeln!(shown, "rules/{rules}.rules:{line}").expect("a text grows");
        for line in body {
            writeln!(shown, "  {line}").expect("a text grows");
        }
    }
    (!shown.is_empty()).then_some(shown)
}

/// The lines of a rule, and the number of the first, from 1.
fn rule<'t>(text: &'t str, name: &str) -> Option<(usize, Vec<&'t str>)> {
    let begins = |line: &str| {
        let line = line.trim_start();
        let rest = match name {
            "otherwise" => line.strip_prefix("otherwise"),
            name => line
                .strip_prefix("rule")
                .filter(|rest| rest.starts_with(char::is_whitespace))
                .and_then(|rest| rest.trim_start().strip_prefix(name)),
        };
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '-'))
    };
    let first = text.lines().position(begins)?;
    let (mut lines, mut depth, mut has_begun) = (Vec::new(), 0usize, false);
    for line in text.lines().skip(first).take(LINES_MAX) {
        lines.push(line);
        let mut is_quoted = false;
        for c in line.chars() {
            match c {
                '"' => is_quoted = !is_quoted,
                '#' if !is_quoted => break,
                '{' if !is_quoted => (depth, has_begun) = (depth + 1, true),
                '}' if !is_quoted => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        if has_begun && depth == 0 {
            break;
        }
    }
    Some((first + 1, lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "match all\n\n# rule adt is a comment\nrule adt when MSH-9.1 = \"A}T\" {\n  send to out # }\n}\n\
                         rule adt2 { drop \"x\" }\nrule lab\n  when MSH-9.1 = \"ORU\"\n{ send to lab }\n\notherwise { reject \"no\" }\n";

    #[test]
    fn the_rules_that_held_are_shown_as_they_stand() {
        let shown = |reason: &str| rule_text("main", RULES, reason).unwrap_or_default();
        assert_eq!(
            shown("main: adt (not: lab, adt2)"),
            "rules/main.rules:4\n  rule adt when MSH-9.1 = \"A}T\" {\n    send to out # }\n  }\n"
        );
        assert_eq!(
            shown("main: adt2, lab"),
            "rules/main.rules:7\n  rule adt2 { drop \"x\" }\nrules/main.rules:8\n  rule lab\n    when MSH-9.1 = \"ORU\"\n  \
             { send to lab }\n"
        );
        assert_eq!(shown("main: adt2: every transform skipped it"), "rules/main.rules:7\n  rule adt2 { drop \"x\" }\n");
        assert_eq!(shown("main: otherwise (not: adt)"), "rules/main.rules:12\n  otherwise { reject \"no\" }\n");
    }

    #[test]
    fn a_reason_that_names_no_rule_explains_nothing() {
        for reason in ["", "main", "main: no rule holds (not: adt)", "other: adt", "resent by hand", "main: gone"] {
            assert_eq!(rule_text("main", RULES, reason), None, "{reason}");
        }
    }
}
