//! The words of the startup parameter `options`, as PostgreSQL splits them: a backslash takes the meaning from the blank behind it.

/// The words of a text.
pub(super) fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut chars) = (Vec::new(), None::<String>, text.chars());
    while let Some(letter) = chars.next() {
        let letter = match letter {
            '\\' => chars.next().unwrap_or('\\'),
            letter if letter.is_ascii_whitespace() => {
                words.extend(word.take());
                continue;
            }
            letter => letter,
        };
        word.get_or_insert_default().push(letter);
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_keeps_a_blank_in_its_word() {
        for (text, expected) in [
            (
                "-c default_transaction_isolation=repeatable\\ read",
                &["-c", "default_transaction_isolation=repeatable read"][..],
            ),
            ("  --a=1\t-cb=2 ", &["--a=1", "-cb=2"]),
            ("-c a=\\\\x", &["-c", "a=\\x"]),
            ("a\\", &["a\\"]),
            ("", &[]),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
    }
}
