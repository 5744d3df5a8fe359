//! From the names of a request (`logs-*,-logs-old,alias`) to indices.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Indices, Registry};
use crate::error::SearchError;
use crate::index::SearchIndex;
use crate::mapping::matches_pattern;
use crate::rights::{Asker, MessageScope};

/// Which indices a pattern stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expand {
    /// Open ones.
    pub open: bool,
    /// Closed ones.
    pub closed: bool,
    /// Those with the setting `index.hidden`.
    pub hidden: bool,
}

/// What happens with names that are not there.
#[derive(Clone, Copy, Debug)]
pub struct ResolveOptions {
    /// A name without an index is passed over.
    pub ignore_unavailable: bool,
    /// Patterns may stand for nothing.
    pub allow_no_indices: bool,
    /// Which indices patterns stand for.
    pub expand: Expand,
    /// A closed index is an error where it is named.
    pub forbid_closed: bool,
    /// Patterns stand for aliases too.
    pub aliases: bool,
}

impl Default for ResolveOptions {
    fn default() -> ResolveOptions {
        ResolveOptions {
            ignore_unavailable: false,
            allow_no_indices: true,
            expand: Expand { open: true, closed: false, hidden: false },
            forbid_closed: true,
            aliases: true,
        }
    }
}

impl ResolveOptions {
    /// The options of a request's parameters, on top of these.
    ///
    /// Errors: a value that is not known.
    pub fn of(self, parameters: &BTreeMap<String, String>) -> Result<ResolveOptions, SearchError> {
        let mut options = self;
        for (name, at) in [
            ("ignore_unavailable", &mut options.ignore_unavailable),
            ("allow_no_indices", &mut options.allow_no_indices),
        ] {
            match parameters.get(name).map(String::as_str) {
                None => {}
                Some("" | "true") => *at = true,
                Some("false") => *at = false,
                Some(other) => {
                    return Err(SearchError::argument(format!("Failed to parse value [{other}] of [{name}]")));
                }
            }
        }
        if let Some(text) = parameters.get("expand_wildcards") {
            options.expand = Expand { open: false, closed: false, hidden: false };
            for word in text.split(',') {
                match word {
                    "open" => options.expand.open = true,
                    "closed" => options.expand.closed = true,
                    "hidden" => options.expand.hidden = true,
                    "all" => options.expand = Expand { open: true, closed: true, hidden: true },
                    "none" => options.expand = Expand { open: false, closed: false, hidden: false },
                    other => {
                        return Err(SearchError::argument(format!("No valid expand wildcard value [{other}]")));
                    }
                }
            }
        }
        Ok(options)
    }
}

/// An index that a request means.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The index.
    pub index: Arc<SearchIndex>,
    /// The filter of the aliases by which it was named; `None` if it was also named by itself.
    pub filter: Option<Value>,
    /// The part of it that the caller may see; `None`: all of it.
    pub scope: Option<Arc<MessageScope>>,
}

impl Resolved {
    /// Whether documents that the filter leaves out may be read too, as by their ids. Errors: the refusal.
    pub fn check_whole(&self, asker: &Asker) -> Result<(), SearchError> {
        if self.filter.is_none() { Ok(()) } else { asker.check(&self.index.name()) }
    }
}

/// How an index was named.
#[derive(Default)]
struct Named {
    by_itself: bool,
    filters: Vec<Value>,
}

impl Registry {
    /// Names the indices that a pattern stands for, of those that `asker` may see; whether there is one.
    fn by_pattern(
        &self,
        part: &str,
        options: &ResolveOptions,
        asker: &Asker,
        named: &mut BTreeMap<String, Named>,
    ) -> bool {
        let expand = options.expand;
        let is_all = matches!(part, "" | "_all" | "*");
        let mut found = false;
        for index in self.open.values() {
            let definition = index.definition();
            let hidden = is_hidden(&definition.settings) && !part.starts_with('.') && !expand.hidden;
            let wanted = if definition.closed { expand.closed } else { expand.open };
            if hidden || !wanted {
                continue;
            }
            let wants_index = is_all || matches_pattern(part, &definition.name);
            let wants_alias = |alias: &str| options.aliases && (is_all || matches_pattern(part, alias));
            if !wants_index && !definition.aliases.keys().any(|alias| wants_alias(alias)) {
                continue;
            }
            let may_index = asker.may(&definition.name);
            if index.is_fed() && !(may_index && asker.may_some_messages()) {
                continue;
            }
            if may_index && wants_index {
                named.entry(definition.name.clone()).or_default().by_itself = true;
                found = true;
            }
            // All indices are all by themselves; who may use only an alias of one gets it by that.
            let by_alias = definition.aliases.iter().filter(|(alias, _)| wants_alias(alias) && !(is_all && may_index));
            for (_, alias) in by_alias.filter(|(alias, _)| may_index || asker.may(alias)) {
                found = true;
                name_by_alias(named.entry(definition.name.clone()).or_default(), alias);
            }
        }
        found
    }

    /// Names the index of this name, or those of the alias; whether there is one.
    ///
    /// Errors: 400 for a closed index where none is wanted; 503 for one that is red.
    fn by_name(
        &self,
        part: &str,
        options: &ResolveOptions,
        named: &mut BTreeMap<String, Named>,
    ) -> Result<bool, SearchError> {
        if let Some(index) = self.open.get(part) {
            if index.definition().closed && options.forbid_closed {
                return match options.ignore_unavailable {
                    true => Ok(true),
                    false => Err(SearchError::new(400, "index_closed_exception", "closed").of(part)),
                };
            }
            named.entry(part.to_owned()).or_default().by_itself = true;
            return Ok(true);
        }
        if let Some(red) = self.red.get(part) {
            let reason = format!("index [{part}] cannot be opened: {}", red.why);
            return Err(SearchError::new(503, "no_shard_available_action_exception", reason).of(part));
        }
        let mut found = false;
        for index in self.open.values() {
            let definition = index.definition();
            if let Some(alias) = definition.aliases.get(part) {
                found = true;
                name_by_alias(named.entry(definition.name.clone()).or_default(), alias);
            }
        }
        Ok(found)
    }
}

impl Registry {
    /// Whether a name may be used, whatever it means.
    fn may_use(&self, name: &str, asker: &Asker) -> bool {
        // A name that is there takes the same steps as one that is not: who may not use it is not to learn it from the time.
        let may = asker.may(name);
        let index = self.open.get(name);
        let is_meant = |index: &&Arc<SearchIndex>| index.definition().aliases.contains_key(name);
        let meant: Vec<&Arc<SearchIndex>> = self.open.values().filter(is_meant).collect();
        let may = match index {
            Some(_) => may,
            None => may || (!meant.is_empty() && meant.iter().all(|index| asker.may(&index.definition().name))),
        };
        may && (!index.into_iter().chain(meant).any(|index| index.is_fed()) || asker.may_some_messages())
    }
}

impl Indices {
    /// Whether a name may be used, whatever it means. Errors: the refusal.
    pub fn check_use(&self, name: &str, asker: &Asker) -> Result<(), SearchError> {
        let may = self.registry.read().may_use(name, asker);
        if may { Ok(()) } else { Err(asker.refusal_of(name)) }
    }

    /// The indices that names, aliases and patterns stand for, by name.
    ///
    /// Patterns stand for what `asker` may use. An alias may be used by who may use it, or all of its indices.
    ///
    /// Errors: 403 for a name that may not be used, whether or not it is there; 404 for one that is not there, 400 for a closed
    /// index; 503 for one that is red.
    pub fn resolve(
        &self,
        expression: &str,
        options: ResolveOptions,
        asker: &Asker,
    ) -> Result<Vec<Resolved>, SearchError> {
        let registry = self.registry.read();
        let mut named: BTreeMap<String, Named> = BTreeMap::new();
        let mut had_pattern = false;
        for part in expression.split(',') {
            if part.starts_with('<') {
                return Err(SearchError::unsupported("date math in an index's name"));
            }
            let is_all = matches!(part, "" | "_all" | "*");
            if let Some(excluded) = part.strip_prefix('-').filter(|_| had_pattern) {
                named.retain(|name, _| !matches_pattern(excluded, name));
                continue;
            }
            if part.contains('*') || is_all {
                had_pattern = true;
                let found = registry.by_pattern(part, &options, asker, &mut named);
                if !found && !options.allow_no_indices {
                    return Err(SearchError::no_index(part));
                }
                continue;
            }
            if !registry.may_use(part, asker) {
                match options.ignore_unavailable {
                    true => continue,
                    false => return Err(asker.refusal_of(part)),
                }
            }
            let found = registry.by_name(part, &options, &mut named)?;
            if !found && !options.ignore_unavailable {
                return Err(SearchError::no_index(part));
            }
        }
        if named.is_empty() && !options.allow_no_indices {
            return Err(SearchError::no_index(expression));
        }
        let resolved = |(name, named): (String, Named)| {
            let index = Arc::clone(registry.open.get(&name)?);
            let filter =
                (!named.by_itself && !named.filters.is_empty()).then(|| json!({"bool": {"should": named.filters}}));
            Some((index, filter))
        };
        let found: Vec<(Arc<SearchIndex>, Option<Value>)> = named.into_iter().filter_map(resolved).collect();
        // The services of an index are read from its files: not under the lock.
        drop(registry);
        let scoped = |(index, filter): (Arc<SearchIndex>, Option<Value>)| {
            let scope = asker.scope_of(&index)?;
            Ok(Resolved { index, filter, scope })
        };
        found.into_iter().map(scoped).collect()
    }

    /// The one index that a write to a name goes to: an index, or the alias of one, or the alias's write index.
    ///
    /// Errors: 403 if it may not be used; 404 if there is none; 400 if it is not one.
    pub fn write_index(&self, name: &str, asker: &Asker) -> Result<Arc<SearchIndex>, SearchError> {
        if let Some(index) = self.get(name) {
            self.check_use(name, asker)?;
            asker.record()?;
            if index.definition().closed {
                return Err(SearchError::new(400, "index_closed_exception", "closed").of(name));
            }
            return Ok(index);
        }
        let options = ResolveOptions::default();
        if name.contains('*') || name.contains(',') || name == "_all" {
            return Err(SearchError::argument(format!("a write needs one index, not [{name}]")));
        }
        self.resolve(name, options, asker)?;
        let found = self.of_alias(name, asker)?;
        asker.record()?;
        let mut writers = found.iter().filter(|(_, alias)| {
            found.len() == 1 && alias["is_write_index"] != json!(false) || alias["is_write_index"] == json!(true)
        });
        match (writers.next(), writers.next()) {
            (Some((index, _)), None) => Ok(Arc::clone(index)),
            _ => Err(SearchError::argument(format!(
                "no write index is defined for alias [{name}]. The write index may be explicitly disabled using \
                 is_write_index=false or the alias points to multiple indices without one being designated as a write index"
            ))),
        }
    }

    /// The indices of an alias, each with what the alias says of it: all as of one moment. Errors: it may not be used; it is none.
    fn of_alias(&self, name: &str, asker: &Asker) -> Result<Vec<(Arc<SearchIndex>, Value)>, SearchError> {
        let registry = self.registry.read();
        if !registry.may_use(name, asker) {
            return Err(asker.refusal_of(name));
        }
        let of = |index: &Arc<SearchIndex>| Some((Arc::clone(index), index.definition().aliases.get(name)?.clone()));
        let found: Vec<(Arc<SearchIndex>, Value)> = registry.open.values().filter_map(of).collect();
        if found.is_empty() { Err(SearchError::no_index(name)) } else { Ok(found) }
    }

    /// Whether a name is an alias.
    pub fn is_alias(&self, name: &str) -> bool {
        self.registry.read().open.values().any(|index| index.definition().aliases.contains_key(name))
    }
}

fn name_by_alias(named: &mut Named, alias: &Value) {
    match alias.get("filter") {
        Some(filter) => named.filters.push(filter.clone()),
        // Everything, whatever other aliases leave out.
        None => named.by_itself = true,
    }
}

fn is_hidden(settings: &BTreeMap<String, Value>) -> bool {
    let value = settings.get("index.hidden");
    value.is_some_and(|value| value == &Value::Bool(true) || value.as_str() == Some("true"))
}
