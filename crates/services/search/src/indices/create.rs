//! Creating indices, and changing their settings and aliases.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use node::identity::Action;
use serde_json::{Map, Value, json};

use super::templates::Template;
use super::{Indices, flat_settings, settings};
use crate::error::SearchError;
use crate::index::{IndexDefinition, SearchIndex, now_millis, redefine_all};
use crate::mapping::{Columns, Mapping};
use crate::query::{QueryContext, build};
use crate::rights::Asker;
use crate::waiting::waiting;

/// The version of Elasticsearch that clients are told, as indices name it.
const VERSION_ID: &str = "8190099";

/// Longest name of an index, in bytes (Elasticsearch's limit).
const NAME_BYTES_MAX: usize = 255;

/// Most aliases of an index: each write of its definition, and each name that a request resolves, goes through them.
const ALIASES_MAX: usize = 1_000;

/// A change of one alias of one index; none removes it.
pub type AliasChange = (Arc<SearchIndex>, String, Option<Arc<Value>>);

/// What a request says of a new index.
#[derive(Clone, Debug, Default)]
pub struct NewIndex {
    /// Settings, nested or flat.
    pub settings: Value,
    /// The mapping.
    pub mappings: Value,
    /// Aliases by name.
    pub aliases: Map<String, Value>,
}

impl NewIndex {
    /// Reads the body of a request. Errors: a part that is not known.
    pub fn read(body: Option<&Value>) -> Result<NewIndex, SearchError> {
        let mut new = NewIndex::default();
        let Some(body) = body else { return Ok(new) };
        let Value::Object(body) = body else {
            return Err(SearchError::body("the body of the request is not an object"));
        };
        for (name, value) in body {
            match (name.as_str(), value) {
                ("settings", value) => new.settings = value.clone(),
                ("mappings", value) => new.mappings = value.clone(),
                ("aliases", Value::Object(aliases)) => new.aliases = aliases.clone(),
                (other, _) => {
                    return Err(SearchError::body(format!("unknown key [{other}] for create index")));
                }
            }
        }
        Ok(new)
    }
}

impl Indices {
    /// Creates an index; it gets what the templates for its name say. Durable when it returns.
    ///
    /// Errors: `asker` may not make it, or not change one of its aliases; a name that cannot be or is taken; a setting, mapping or alias that cannot be; too many indices; the store's.
    pub fn create(&self, name: &str, new: NewIndex, asker: &Asker) -> Result<Arc<SearchIndex>, SearchError> {
        asker.check(name)?;
        let aliasing = asker.asking("indices:admin/aliases", &[Action::IndexManage]);
        if !new.aliases.is_empty() {
            aliasing.check(name)?;
            new.aliases.keys().try_for_each(|alias| aliasing.check(alias))?;
        }
        check_name(name)?;
        asker.record()?;
        let _naming = self.naming.lock();
        self.create_locked(name, new)
    }

    /// The index that a document goes to, created if there is none.
    ///
    /// Errors: as for [`create`](Indices::create) and [`write_index`](Indices::write_index); the cluster forbids it.
    pub fn for_write(&self, name: &str, require_alias: bool, asker: &Asker) -> Result<Arc<SearchIndex>, SearchError> {
        self.check_use(name, asker)?;
        if require_alias && !self.is_alias(name) {
            let reason = format!(
                "no such index [{name}] and [require_alias] request flag is [true] and [{name}] is not an alias"
            );
            return Err(SearchError::new(404, "index_not_found_exception", reason).of(name));
        }
        match self.write_index(name, asker) {
            Err(error) if error.kind == "index_not_found_exception" => {}
            found => return found,
        }
        if let Some(red) = self.red().into_iter().find(|red| red.definition.name == name) {
            return Err(SearchError::new(503, "unavailable_shards_exception", red.why.reason).of(name));
        }
        check_name(name)?;
        asker.asking("indices:admin/auto_create", &[Action::IndexMake]).check(name)?;
        if !self.may_auto_create(name) {
            let reason = format!("no such index [{name}] and [action.auto_create_index] does not match");
            return Err(SearchError::new(404, "index_not_found_exception", reason).of(name));
        }
        asker.record()?;
        let _naming = waiting(|| self.naming.lock());
        // Somebody else may have created it meanwhile.
        let made = match self.get(name) {
            Some(index) => Ok(index),
            None if self.is_alias(name) => self.write_index(name, asker),
            None => waiting(|| self.create_locked(name, NewIndex::default())),
        };
        // Others of the same request may be made.
        made.inspect_err(|error| asker.failed(Some(name), error))
    }

    fn may_auto_create(&self, name: &str) -> bool {
        match self.cluster_setting("action.auto_create_index") {
            None => true,
            Some(Value::String(text)) => match text.as_str() {
                "true" => true,
                "false" => false,
                patterns => patterns
                    .split(',')
                    .any(|pattern| crate::mapping::matches_pattern(pattern.trim_start_matches('+'), name)),
            },
            Some(_) => true,
        }
    }

    fn create_locked(&self, name: &str, new: NewIndex) -> Result<Arc<SearchIndex>, SearchError> {
        {
            if self.reserved.iter().any(|reserved| reserved == name) {
                let reason = format!("Invalid index name [{name}], it is that of an index that the node itself makes");
                return Err(SearchError::new(400, "invalid_index_name_exception", reason).of(name));
            }
            let registry = self.registry.read();
            let taken = registry.open.get(name).map(|index| index.definition().uuid.clone());
            if let Some(uuid) = taken.or_else(|| registry.red.get(name).map(|red| red.definition.uuid.clone())) {
                let reason = format!("index [{name}/{uuid}] already exists");
                return Err(SearchError::new(400, "resource_already_exists_exception", reason).of(name));
            }
            if registry.open.len() + registry.red.len() >= self.indices_max {
                return Err(SearchError::argument(format!(
                    "this node has {} indices, and at most {}: delete one, or put documents of several kinds into one",
                    registry.open.len(),
                    self.indices_max
                )));
            }
        }
        if self.is_alias(name) {
            let reason = format!("Invalid index name [{name}], already exists as alias");
            return Err(SearchError::new(400, "invalid_index_name_exception", reason).of(name));
        }
        let Template { settings: mut all, mappings, mut aliases } = self.templates.for_index(name)?;
        all.extend(flat_settings(&new.settings)?);
        let mut settings: BTreeMap<String, Value> = all.into_iter().filter(|(_, value)| !value.is_null()).collect();
        settings.entry("index.number_of_shards".to_owned()).or_insert(json!("1"));
        settings.entry("index.number_of_replicas".to_owned()).or_insert(json!("1"));
        let own = (!new.mappings.is_null()).then_some(&new.mappings);
        let mapping = Mapping::composed(mappings.iter().chain(own))?;
        aliases.extend(new.aliases);
        check_count(name, aliases.len())?;
        let mut checked = BTreeMap::new();
        for (alias, body) in aliases {
            let alias = alias.replace("{index}", name);
            self.check_alias(&alias, &body)?;
            checked.insert(alias, body);
        }
        let all = checked.iter().map(|(alias, body)| (name.to_owned(), alias.as_str(), Some(body)));
        self.check_writers(&all.collect::<Vec<_>>())?;
        let definition = IndexDefinition {
            name: name.to_owned(),
            uuid: new_uuid(),
            created: now_millis() as i64,
            settings,
            mapping: mapping.to_json(),
            columns: Columns::default(),
            aliases: checked,
            closed: false,
            feed: None,
        };
        let index = SearchIndex::create(self.place.clone(), definition, None)?;
        self.registry.write().open.insert(name.to_owned(), Arc::clone(&index));
        tracing::info!(index = name, "search index created");
        Ok(index)
    }

    /// Changes settings of an index; null removes one. Durable when it returns.
    ///
    /// Errors: one that is not known or cannot change; those of the store.
    pub fn put_settings(&self, index: &SearchIndex, changes: &Value, preserve: bool) -> Result<(), SearchError> {
        let flat = flat_settings(changes)?;
        crate::index::check_settings_writable(index, &flat)?;
        settings::check_dynamic(&index.name(), &flat)?;
        index.redefine(|definition| {
            for (name, value) in flat {
                if !(preserve && definition.settings.contains_key(&name)) {
                    settings::set(&mut definition.settings, name, value);
                }
            }
            for (name, default) in [("index.number_of_replicas", "1"), ("index.number_of_shards", "1")] {
                definition.settings.entry(name.to_owned()).or_insert(json!(default));
            }
        })
    }

    /// Changes aliases: each with the index, and what to put; none removes it. All of them happen at once: no request sees some of
    /// them, and none is lost without the others. Durable when it returns.
    ///
    /// Errors: a name that cannot be an alias, too many aliases of an index; those of the store.
    pub fn put_aliases(&self, changes: &[AliasChange]) -> Result<(), SearchError> {
        let _naming = waiting(|| self.naming.lock());
        let mut by_index: BTreeMap<String, (&SearchIndex, Vec<&AliasChange>)> = BTreeMap::new();
        for change in changes {
            let (index, alias, body) = change;
            index.check_writable()?;
            if let Some(body) = body {
                self.check_alias(alias, body)?;
                check_filter(index, alias, body)?;
            }
            by_index.entry(index.name()).or_insert_with(|| (&**index, Vec::new())).1.push(change);
        }
        for (index, changes) in by_index.values() {
            let definition = index.definition();
            let mut names: BTreeSet<&str> = definition.aliases.keys().map(String::as_str).collect();
            for (_, alias, body) in changes {
                match body {
                    Some(_) => names.insert(alias),
                    None => names.remove(alias.as_str()),
                };
            }
            // One that has more of them from before may lose some.
            if names.len() > definition.aliases.len() {
                check_count(&definition.name, names.len())?;
            }
        }
        let all = changes.iter().map(|(index, alias, body)| (index.name(), alias.as_str(), body.as_deref()));
        self.check_writers(&all.collect::<Vec<_>>())?;
        let change = |changes: Vec<&AliasChange>| {
            let changes: Vec<AliasChange> = changes.into_iter().cloned().collect();
            move |definition: &mut IndexDefinition| {
                for (_, alias, body) in changes {
                    match body {
                        Some(body) => drop(definition.aliases.insert(alias, Value::clone(&body))),
                        None => drop(definition.aliases.remove(&alias)),
                    }
                }
            }
        };
        let changes = by_index.into_values().map(|(index, changes)| (index, change(changes))).collect();
        waiting(|| redefine_all(changes, || self.registry.write()))
    }

    fn check_alias(&self, alias: &str, body: &Value) -> Result<(), SearchError> {
        let refused = |why: &str| {
            let reason = format!("Invalid alias name [{alias}]: {why}");
            Err(SearchError::new(400, "invalid_alias_name_exception", reason).of(alias))
        };
        // As the name of an index, but for capitals.
        if let Err(error) = check_name(&alias.to_lowercase()) {
            return refused(&error.reason);
        }
        if self.reserved.iter().any(|reserved| reserved == alias) {
            return refused("it is the name of an index that the node itself makes");
        }
        if self.registry.read().open.contains_key(alias) {
            return refused("an index or data stream exists with the same name as the alias");
        }
        let Some(body) = body.as_object() else { return refused("its definition is not an object") };
        for (name, value) in body {
            match (name.as_str(), value) {
                ("filter", Value::Object(_)) | ("is_write_index" | "is_hidden", Value::Bool(_)) => {}
                ("routing" | "index_routing" | "search_routing", _) => {
                    return Err(SearchError::unsupported("routing of an alias"));
                }
                (other, _) => return refused(&format!("[{other}] is not known or has another form")),
            }
        }
        Ok(())
    }

    /// Errors: by these changes of aliases, each of an index and with what it becomes, one would have two indices that take its writes.
    fn check_writers(&self, changes: &[(String, &str, Option<&Value>)]) -> Result<(), SearchError> {
        let writes = |body: &Value| body.get("is_write_index") == Some(&Value::Bool(true));
        let mut writers: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (_, alias, body) in changes {
            if body.is_some_and(writes) {
                writers.entry(*alias).or_default();
            }
        }
        if writers.is_empty() {
            return Ok(());
        }
        for (name, index) in &self.registry.read().open {
            let definition = index.definition();
            for (alias, of_alias) in &mut writers {
                if definition.aliases.get(*alias).is_some_and(writes) {
                    of_alias.insert(name.clone());
                }
            }
        }
        for (index, alias, body) in changes {
            let Some(of_alias) = writers.get_mut(alias) else { continue };
            match body.is_some_and(writes) {
                true => of_alias.insert(index.clone()),
                false => of_alias.remove(index),
            };
        }
        match writers.into_iter().find(|(_, of_alias)| of_alias.len() > 1) {
            Some((alias, of_alias)) => {
                let names: Vec<String> = of_alias.into_iter().collect();
                let names = names.join(",");
                Err(SearchError::argument(format!("alias [{alias}] has more than one write index [{names}]")))
            }
            None => Ok(()),
        }
    }

    /// The settings of an index as responses show them, flat.
    pub fn shown_settings(index: &SearchIndex) -> BTreeMap<String, Value> {
        let definition = index.definition();
        let mut shown = definition.settings.clone();
        shown.insert("index.uuid".to_owned(), json!(definition.uuid));
        shown.insert("index.creation_date".to_owned(), json!(definition.created.to_string()));
        shown.insert("index.provided_name".to_owned(), json!(definition.name));
        shown.insert("index.version.created".to_owned(), json!(VERSION_ID));
        shown
    }

    /// The same, nested.
    pub fn nested_settings(flat: &BTreeMap<String, Value>) -> Value {
        settings::nested(flat)
    }
}

/// Errors: the filter of an alias is no query of its index. Each use of the alias would fail.
fn check_filter(index: &SearchIndex, alias: &str, body: &Value) -> Result<(), SearchError> {
    let Some(filter) = body.get("filter").filter(|_| !index.definition().closed) else { return Ok(()) };
    let context = QueryContext { now: now_millis() as i64, stop: None, cheap: false };
    match build(&index.view().view, filter, &context) {
        Ok(_) => Ok(()),
        Err(error) => {
            Err(SearchError::argument(format!("failed to parse filter for alias [{alias}]: {}", error.reason)))
        }
    }
}

/// Errors: an index cannot have so many aliases.
fn check_count(index: &str, aliases: usize) -> Result<(), SearchError> {
    match aliases > ALIASES_MAX {
        true => Err(SearchError::argument(format!(
            "index [{index}] would have {aliases} aliases, and at most {ALIASES_MAX}"
        ))),
        false => Ok(()),
    }
}

/// Errors: the name of an index cannot be like this.
fn check_name(name: &str) -> Result<(), SearchError> {
    let why = if name.is_empty() || name.len() > NAME_BYTES_MAX {
        "must have 1 to 255 bytes"
    } else if name != name.to_lowercase() {
        "must be lowercase"
    } else if name == "." || name == ".." {
        "must not be '.' or '..'"
    } else if name.starts_with(['_', '-', '+']) {
        "must not start with '_', '-', or '+'"
    } else if name.contains(['#', ':']) {
        "must not contain '#' or ':'"
    } else if name.contains(['\\', '/', '*', '?', '"', '<', '>', '|', ' ', ',']) || name.chars().any(char::is_control) {
        "must not contain the following characters [ , \", *, \\, <, |, ,, >, /, ?]"
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(NAME_BYTES_MAX).collect();
    Err(SearchError::new(400, "invalid_index_name_exception", format!("Invalid index name [{shown}], {why}"))
        .of(&shown))
}

/// A name that is never used again.
pub(super) fn new_uuid() -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    (0..22).map(|_| char::from(LETTERS[fastrand::usize(..LETTERS.len())])).collect()
}
