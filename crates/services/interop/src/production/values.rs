//! Values by environment: one production folder serves a test and a live system, which differ in addresses, ports and folders.
//!
//! ```text
//!   services/in.toml    listen = "${address}:2575"
//!   values.toml         [default]  address = "127.0.0.1"        for every environment
//!                       [live]     address = "10.0.0.5"         where terrace.toml has `environment = "live"`
//!   terrace.toml        [values]   address = ".."               of this node; wins over both
//! ```
//!
//! A value takes the place of `${name}` in settings (`production.toml`, `services`, `operations`), before they are read as TOML.
//! Rules, transforms and tables have none: what decides about a message is the same everywhere. `$${` is a `${`, and comments stay as
//! they are.
//!
//! Invariants: a name without a value is a fault with file and line, never an empty text; a value cannot end the text that it is put
//! into, since it has no quotes, backslashes or control characters.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::lang::{Diagnostic, Source, diagnose, suggest};

/// The file of a production that has values for its environments.
pub(crate) const VALUES_FILE: &str = "values.toml";

/// The table of values for every environment.
const EVERYWHERE: &str = "default";

/// Longest value, in bytes.
const VALUE_BYTES_MAX: usize = 1_000;

/// The values of a node, and which of those of a production are for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values {
    environment: Option<String>,
    own: BTreeMap<String, String>,
}

impl Values {
    /// `environment` names a table of `values.toml`; `own` win over what stands there.
    ///
    /// # Errors
    /// The text of a name or a value that cannot be.
    pub fn new(environment: Option<String>, own: BTreeMap<String, toml::Value>) -> Result<Values, String> {
        let mut texts = BTreeMap::new();
        for (name, value) in own {
            let text = text_of(&name, &value)?;
            texts.insert(name, text);
        }
        Ok(Values { environment, own: texts })
    }
}

/// A value as text.
fn text_of(name: &str, value: &toml::Value) -> Result<String, String> {
    if !is_name(name) {
        return Err(format!("`{name}` is no name of a value: use letters, digits, - and _"));
    }
    let text = match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Boolean(is) => is.to_string(),
        _ => return Err(format!("the value of `{name}` is no text, whole number or true or false")),
    };
    if text.len() > VALUE_BYTES_MAX {
        return Err(format!("the value of `{name}` has more than {VALUE_BYTES_MAX} bytes"));
    }
    if text.chars().any(|c| c.is_control() || "\"'\\".contains(c)) {
        return Err(format!("the value of `{name}` holds a quote, a backslash or a control character"));
    }
    Ok(text)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// The values in force for a production.
#[derive(Debug, Default)]
pub(super) struct ValuesInForce {
    values: BTreeMap<String, String>,
    environment: Option<String>,
    /// Those that took a place.
    used: BTreeMap<String, String>,
}

impl ValuesInForce {
    /// Of a production with this `values.toml`, for a node; and the faults of that file.
    pub(super) fn of(file: Option<&str>, node: &Values) -> (ValuesInForce, Vec<Diagnostic>) {
        let (mut values, mut faults) = (BTreeMap::new(), Vec::new());
        if let Some(text) = file {
            let source = Source { file: VALUES_FILE, text };
            match toml::from_str::<BTreeMap<String, BTreeMap<String, toml::Value>>>(text) {
                Err(error) => {
                    let at = error.span().unwrap_or(0..0);
                    faults.push(diagnose(source, at, error.message().trim().to_owned(), None));
                }
                Ok(tables) => {
                    if let Some(named) = node.environment.as_deref().filter(|named| !tables.contains_key(*named)) {
                        let hint = suggest(named, tables.keys().map(String::as_str), "environments");
                        faults.push(diagnose(source, 0..0, format!("there is no [{named}]"), Some(hint)));
                    }
                    let wanted = [Some(EVERYWHERE), node.environment.as_deref()];
                    for (table, all) in &tables {
                        for (name, value) in all {
                            match text_of(name, value) {
                                Err(wrong) => faults.push(diagnose(source, line_of(text, name), wrong, None)),
                                // Of the two, `default` is not the one that wins.
                                Ok(text) if wanted.contains(&Some(table.as_str())) => {
                                    if table != EVERYWHERE || !values.contains_key(name) {
                                        values.insert(name.clone(), text);
                                    }
                                }
                                Ok(_) => {}
                            }
                        }
                    }
                }
            }
        }
        values.extend(node.own.clone());
        (ValuesInForce { values, environment: node.environment.clone(), used: BTreeMap::new() }, faults)
    }

    /// The values that took a place.
    pub(super) fn into_used(self) -> BTreeMap<String, String> {
        self.used
    }

    /// A text with the values in their places, and the faults of places without a value.
    pub(super) fn fill(&mut self, source: Source<'_>) -> (String, Vec<Diagnostic>) {
        let (mut filled, mut faults, mut at) = (String::with_capacity(source.text.len()), Vec::new(), 0);
        for line in source.text.split_inclusive('\n') {
            if line.trim_start().starts_with('#') || !line.contains("${") {
                filled.push_str(line);
            } else {
                self.fill_line(source, (line, at), &mut filled, &mut faults);
            }
            at += line.len();
        }
        (filled, faults)
    }

    fn fill_line(
        &mut self,
        source: Source<'_>,
        (line, from): (&str, usize),
        filled: &mut String,
        faults: &mut Vec<Diagnostic>,
    ) {
        let mut rest = line;
        while let Some(found) = rest.find("${") {
            let before = &rest[..found];
            if let Some(before) = before.strip_suffix('$') {
                filled.push_str(before);
                filled.push_str("${");
                rest = &rest[found + 2..];
                continue;
            }
            filled.push_str(before);
            let inside = &rest[found + 2..];
            let end = inside.find('}').filter(|end| is_name(&inside[..*end]));
            let place = from + (line.len() - rest.len()) + found;
            let Some(end) = end else {
                let hint = "write ${name} for a value, or $${ for the characters themselves".to_owned();
                let span = place..place + 2;
                faults.push(diagnose(source, span, "`${` begins no name of a value".to_owned(), Some(hint)));
                filled.push_str("${");
                rest = inside;
                continue;
            };
            let name = &inside[..end];
            match self.values.get(name) {
                Some(value) => {
                    filled.push_str(value);
                    self.used.insert(name.to_owned(), value.clone());
                }
                None => {
                    let span: Range<usize> = place..place + end + 3;
                    faults.push(diagnose(source, span, format!("there is no value `{name}`"), Some(self.hint(name))));
                }
            }
            rest = &inside[end + 1..];
        }
        filled.push_str(rest);
    }

    fn hint(&self, name: &str) -> String {
        let place = match &self.environment {
            Some(environment) => format!("[{environment}] or [{EVERYWHERE}] of {VALUES_FILE}"),
            None => {
                format!("[{EVERYWHERE}] of {VALUES_FILE}, or name an `environment` in terrace.toml that has it there")
            }
        };
        let known = suggest(name, self.values.keys().map(String::as_str), "values");
        format!("set it under [values] in terrace.toml, or in {place}; {known}")
    }
}

/// The line of a file that begins with a name.
fn line_of(text: &str, name: &str) -> Range<usize> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_start().strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with('=')) {
            return at..at + line.trim_end().len();
        }
        at += line.len();
    }
    0..0
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[default]\nhost = \"127.0.0.1\"\nport = 2575\n[live]\nhost = \"10.0.0.5\"\ntls = true\n";

    fn values(environment: Option<&str>, own: &[(&str, &str)]) -> Values {
        let own = own.iter().map(|(name, value)| ((*name).to_owned(), toml::Value::String((*value).to_owned())));
        Values::new(environment.map(str::to_owned), own.collect()).expect("they can be")
    }

    fn filled(node: &Values, text: &str) -> Result<String, String> {
        let (mut force, faults) = ValuesInForce::of(Some(FILE), node);
        let source = Source { file: "services/in.toml", text };
        let (filled, more) = force.fill(source);
        match faults.iter().chain(&more).next() {
            None => Ok(filled),
            Some(fault) => Err(format!("{fault}")),
        }
    }

    #[test]
    fn the_node_wins_over_its_environment_and_that_over_the_default() {
        let text = "listen = \"${host}:${port}\"\n# ${none} is a comment\nprice = \"$${host}\"\n";
        let with =
            |host: &str| Ok(format!("listen = \"{host}:2575\"\n# ${{none}} is a comment\nprice = \"${{host}}\"\n"));
        assert_eq!(filled(&values(None, &[]), text), with("127.0.0.1"));
        assert_eq!(filled(&values(Some("live"), &[]), text), with("10.0.0.5"));
        assert_eq!(filled(&values(Some("live"), &[("host", "::1")]), text), with("::1"));
    }

    #[test]
    fn what_has_no_value_is_a_fault_with_its_line_and_what_to_do() {
        for (node, text, told) in [
            (values(None, &[]), "a = 1\nb = \"${prot}\"\n", "services/in.toml:2:6: there is no value `prot`"),
            (values(None, &[]), "b = ${tls}", "name an `environment`"),
            (values(None, &[]), "b = \"${a b}\"", "`${` begins no name of a value"),
            (values(None, &[]), "b = \"${open\"\n}", "`${` begins no name of a value"),
            (values(Some("test"), &[]), "", "values.toml:1:1: there is no [test]"),
        ] {
            let fault = filled(&node, text).expect_err(text);
            assert!(fault.contains(told), "{text}: {fault}");
        }
    }

    #[test]
    fn a_value_cannot_end_the_text_that_it_is_put_into() {
        for (name, value) in [("a b", "x"), ("a", "x\"\ny = 1"), ("a", "x\\"), ("a", "x'"), ("a", "x\u{7}")] {
            let own = BTreeMap::from([(name.to_owned(), toml::Value::String(value.to_owned()))]);
            assert!(Values::new(None, own).is_err(), "{name} {value:?}");
        }
        let (_, faults) = ValuesInForce::of(Some("[default]\na = \"x\\\"y\"\nb = [1]\n"), &Values::default());
        assert_eq!(faults.len(), 2, "{faults:?}");
    }
}
