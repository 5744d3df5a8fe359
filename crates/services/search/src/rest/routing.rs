//! [`Route`]: what a request asks for, by its method and path, and the rights that this needs.
//!
//! Invariants: every route names its rights, so a new one does not compile without them. What a route needs on the node is asked
//! before its handler is called; what it needs on indices is asked where names become indices ([`crate::rights::Asker`]).

use node::identity::Action;

use super::message::{RestMethod, RestRequest};

/// What is asked before a route's handler is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeNeed {
    /// A login that holds.
    Login,
    /// A right on the node.
    Right(Action),
}

/// What is asked before the body of a request is read: memory of bodies is for who may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyNeed {
    /// The right on the node.
    Node,
    /// The rights that it needs on each index, on any at all: which ones it names is in the body, or patterns stand for them.
    Some,
    /// The rights on the index that it names.
    Index,
    /// None: the body is small, as ids are.
    Small,
}

const READ: &[Action] = &[Action::IndexRead];
const WRITE: &[Action] = &[Action::IndexWrite];
/// A query tells what is in documents.
const READ_AND_WRITE: &[Action] = &[Action::IndexRead, Action::IndexWrite];
const MAKE: &[Action] = &[Action::IndexMake];
const MANAGE: &[Action] = &[Action::IndexManage];
const SEE: &[Action] = &[Action::IndexMonitor];
const NONE: &[Action] = &[];
const LOGIN: NodeNeed = NodeNeed::Login;
const MONITOR: NodeNeed = NodeNeed::Right(Action::SearchMonitor);
const ADMINISTER: NodeNeed = NodeNeed::Right(Action::SearchManage);

macro_rules! routes {
    ($(#[$doc:meta])* $name:ident { $($variant:ident $action:literal $node:ident $index:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $name {
            $($variant,)*
        }

        impl $name {
            /// All of them.
            #[cfg(test)]
            pub(super) const ALL: &[$name] = &[$($name::$variant),*];

            fn facts(self) -> (&'static str, NodeNeed, &'static [Action]) {
                match self {
                    $($name::$variant => ($action, $node, $index),)*
                }
            }
        }
    };
}

// Each with the name of its action in Elasticsearch, what it needs on the node, and what on each index.
routes! {
    /// Requests about the node.
    NodeRoute {
        Info "cluster:monitor/main" LOGIN NONE,
        Authenticate "cluster:admin/xpack/security/user/authenticate" LOGIN NONE,
        Health "cluster:monitor/health" MONITOR NONE,
        Settings "cluster:monitor/settings" MONITOR NONE,
        PutSettings "cluster:admin/settings/update" ADMINISTER NONE,
        State "cluster:monitor/state" MONITOR SEE,
        Stats "cluster:monitor/stats" MONITOR NONE,
        PendingTasks "cluster:monitor/task" MONITOR NONE,
        Nodes "cluster:monitor/nodes/info" MONITOR NONE,
        Tasks "cluster:monitor/tasks/lists" LOGIN NONE,
        Task "cluster:monitor/task/get" LOGIN NONE,
        CancelTask "cluster:admin/tasks/cancel" LOGIN NONE,
        Rethrottle "cluster:admin/reindex/rethrottle" LOGIN NONE,
        Templates "indices:admin/index_template/get" MONITOR NONE,
        PutTemplate "indices:admin/index_template/put" ADMINISTER NONE,
        DeleteTemplate "indices:admin/index_template/delete" ADMINISTER NONE,
    }
}

routes! {
    /// Tables for people.
    CatRoute {
        Help "cluster:monitor/main" LOGIN NONE,
        Indices "indices:monitor/stats" LOGIN SEE,
        Count "indices:data/read/search" LOGIN READ,
        Shards "indices:monitor/stats" LOGIN SEE,
        Segments "indices:monitor/segments" LOGIN SEE,
        Aliases "indices:admin/aliases/get" LOGIN SEE,
        Health "cluster:monitor/health" MONITOR NONE,
        Nodes "cluster:monitor/nodes/info" MONITOR NONE,
        Templates "indices:admin/index_template/get" MONITOR NONE,
        Master "cluster:monitor/state" MONITOR NONE,
        Tasks "cluster:monitor/tasks/lists" LOGIN NONE,
        Other "cluster:monitor/main" LOGIN NONE,
    }
}

routes! {
    /// Requests about indices as a whole.
    IndexRoute {
        Create "indices:admin/create" LOGIN MAKE,
        Delete "indices:admin/delete" LOGIN MANAGE,
        Exists "indices:admin/get" LOGIN SEE,
        Get "indices:admin/get" LOGIN SEE,
        Mapping "indices:admin/mappings/get" LOGIN SEE,
        PutMapping "indices:admin/mapping/put" LOGIN MANAGE,
        FieldMapping "indices:admin/mappings/fields/get" LOGIN SEE,
        Settings "indices:monitor/settings/get" LOGIN SEE,
        PutSettings "indices:admin/settings/update" LOGIN MANAGE,
        Open "indices:admin/open" LOGIN MANAGE,
        Close "indices:admin/close" LOGIN MANAGE,
        UpdateAliases "indices:admin/aliases" LOGIN MANAGE,
        Aliases "indices:admin/aliases/get" LOGIN SEE,
        PutAlias "indices:admin/aliases" LOGIN MANAGE,
        DeleteAlias "indices:admin/aliases" LOGIN MANAGE,
        Refresh "indices:admin/refresh" LOGIN WRITE,
        Flush "indices:admin/flush" LOGIN MANAGE,
        ForceMerge "indices:admin/forcemerge" LOGIN MANAGE,
        ClearCache "indices:admin/cache/clear" LOGIN MANAGE,
        Stats "indices:monitor/stats" LOGIN SEE,
        Analyze "indices:admin/analyze" LOGIN READ,
        FieldCaps "indices:data/read/field_caps" LOGIN READ,
        Resolve "indices:admin/resolve/index" LOGIN SEE,
    }
}

routes! {
    /// Requests that search.
    SearchRoute {
        Search "indices:data/read/search" LOGIN READ,
        Scroll "indices:data/read/scroll" LOGIN READ,
        ClearScroll "indices:data/read/scroll/clear" LOGIN READ,
        OpenPoint "indices:data/read/open_point_in_time" LOGIN READ,
        ClosePoint "indices:data/read/close_point_in_time" LOGIN READ,
        CloseAllPoints "indices:data/read/close_point_in_time" LOGIN READ,
        Points "indices:data/read/open_point_in_time" LOGIN READ,
        MultiSearch "indices:data/read/msearch" LOGIN READ,
        Count "indices:data/read/search" LOGIN READ,
        Validate "indices:admin/validate/query" LOGIN READ,
        DeleteByQuery "indices:data/write/delete/byquery" LOGIN READ_AND_WRITE,
        UpdateByQuery "indices:data/write/update/byquery" LOGIN READ_AND_WRITE,
        Reindex "indices:data/write/reindex" LOGIN READ,
    }
}

routes! {
    /// Requests about documents.
    DocumentRoute {
        Bulk "indices:data/write/bulk" LOGIN WRITE,
        MultiGet "indices:data/read/mget" LOGIN READ,
        Index "indices:data/write/index" LOGIN WRITE,
        Create "indices:data/write/index" LOGIN WRITE,
        Get "indices:data/read/get" LOGIN READ,
        Source "indices:data/read/get" LOGIN READ,
        Delete "indices:data/write/delete" LOGIN WRITE,
        Update "indices:data/write/update" LOGIN WRITE,
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Node(NodeRoute),
    Cat(CatRoute),
    Index(IndexRoute),
    Search(SearchRoute),
    Document(DocumentRoute),
}

/// A route with the parts of the path that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Routed<'r> {
    pub(super) route: Route,
    /// Names of indices; of a template, its own.
    pub(super) names: Option<&'r str>,
    /// What else is named: an id, an alias, a metric, fields.
    pub(super) name: Option<&'r str>,
}

impl Route {
    fn facts(self) -> (&'static str, NodeNeed, &'static [Action]) {
        match self {
            Route::Node(route) => route.facts(),
            Route::Cat(route) => route.facts(),
            Route::Index(route) => route.facts(),
            Route::Search(route) => route.facts(),
            Route::Document(route) => route.facts(),
        }
    }

    /// What Elasticsearch calls it.
    pub(super) fn action(self) -> &'static str {
        self.facts().0
    }

    /// What it needs before its handler is called.
    pub(super) fn node_need(self) -> NodeNeed {
        self.facts().1
    }

    /// What it needs on each index.
    pub(super) fn index_needs(self) -> &'static [Action] {
        self.facts().2
    }

    /// What is asked before its body is read.
    pub(super) fn body_need(self) -> BodyNeed {
        match self {
            Route::Document(
                DocumentRoute::Index | DocumentRoute::Create | DocumentRoute::Update | DocumentRoute::Delete,
            ) => BodyNeed::Index,
            // Who lost every right may still close what it holds; texts are analyzed without an index.
            Route::Search(
                SearchRoute::Scroll
                | SearchRoute::ClearScroll
                | SearchRoute::ClosePoint
                | SearchRoute::CloseAllPoints
                | SearchRoute::Points,
            )
            | Route::Index(IndexRoute::Analyze) => BodyNeed::Small,
            _ if self.node_need() != LOGIN => BodyNeed::Node,
            _ if self.index_needs().is_empty() => BodyNeed::Small,
            _ => BodyNeed::Some,
        }
    }

    /// Whether it changes nothing.
    pub(super) fn is_read(self) -> bool {
        self.node_need() != ADMINISTER
            && self.index_needs().iter().all(|action| READ.contains(action) || SEE.contains(action))
    }

    /// All routes.
    #[cfg(test)]
    pub(super) fn all() -> Vec<Route> {
        let mut all: Vec<Route> = NodeRoute::ALL.iter().map(|route| Route::Node(*route)).collect();
        all.extend(CatRoute::ALL.iter().map(|route| Route::Cat(*route)));
        all.extend(IndexRoute::ALL.iter().map(|route| Route::Index(*route)));
        all.extend(SearchRoute::ALL.iter().map(|route| Route::Search(*route)));
        all.extend(DocumentRoute::ALL.iter().map(|route| Route::Document(*route)));
        all
    }
}

/// A route and the two parts of the path that may be names.
type Found<'r> = Option<(Route, Option<&'r str>, Option<&'r str>)>;

impl<'r> Routed<'r> {
    /// The route of a request; `None` if there is none.
    pub(super) fn of(request: &'r RestRequest) -> Option<Routed<'r>> {
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        let method = request.method;
        let found = match path.first().copied().unwrap_or_default() {
            "" | "_cluster" | "_nodes" | "_tasks" | "_security" => of_node(method, &path),
            "_cat" => of_cat(&path[1..]),
            "_index_template" | "_component_template" | "_template" => of_templates(method, &path),
            _ => of_documents(method, &path)
                .or_else(|| of_searches(method, &path))
                .or_else(|| of_indices(method, &path))
                .or_else(|| of_maintenance(method, &path)),
        };
        found.map(|(route, names, name)| Routed { route, names, name })
    }
}

fn of_node<'r>(method: RestMethod, path: &[&'r str]) -> Found<'r> {
    use NodeRoute as To;
    use RestMethod::{Get, Head, Post, Put};
    let (route, names, name) = match (method, path) {
        (Get | Head, []) => (To::Info, None, None),
        (Get | Head, ["_security", "_authenticate"]) => (To::Authenticate, None, None),
        (Get | Head, ["_cluster", "health"]) => (To::Health, None, None),
        (Get | Head, ["_cluster", "health", names]) => (To::Health, Some(*names), None),
        (Get, ["_cluster", "settings"]) => (To::Settings, None, None),
        (Put, ["_cluster", "settings"]) => (To::PutSettings, None, None),
        (Get, ["_cluster", "state", rest @ ..]) => (To::State, rest.get(1).copied(), rest.first().copied()),
        (Get, ["_cluster", "stats", ..]) => (To::Stats, None, None),
        (Get, ["_cluster", "pending_tasks"]) => (To::PendingTasks, None, None),
        (Get, ["_nodes", ..]) => (To::Nodes, None, None),
        (Get, ["_tasks"]) => (To::Tasks, None, None),
        (Get, ["_tasks", id]) => (To::Task, None, Some(*id)),
        (Post, ["_tasks", "_cancel"]) => (To::CancelTask, None, None),
        (Post, ["_tasks", id, "_cancel"]) => (To::CancelTask, None, Some(*id)),
        _ => return None,
    };
    Some((Route::Node(route), names, name))
}

fn of_cat<'r>(path: &[&'r str]) -> Found<'r> {
    use CatRoute as To;
    let (route, names) = match path {
        [] => (To::Help, None),
        ["indices", rest @ ..] if rest.len() < 2 => (To::Indices, rest.first()),
        ["count", rest @ ..] if rest.len() < 2 => (To::Count, rest.first()),
        ["shards", rest @ ..] if rest.len() < 2 => (To::Shards, rest.first()),
        ["segments", rest @ ..] if rest.len() < 2 => (To::Segments, rest.first()),
        ["aliases", rest @ ..] if rest.len() < 2 => (To::Aliases, rest.first()),
        ["templates", rest @ ..] if rest.len() < 2 => (To::Templates, rest.first()),
        ["health"] => (To::Health, None),
        ["nodes"] => (To::Nodes, None),
        ["master"] => (To::Master, None),
        ["tasks"] => (To::Tasks, None),
        _ => (To::Other, None),
    };
    Some((Route::Cat(route), names.copied(), None))
}

fn of_templates<'r>(method: RestMethod, path: &[&'r str]) -> Found<'r> {
    use NodeRoute as To;
    use RestMethod::{Delete, Get, Head, Post, Put};
    let (route, name) = match (method, &path[1..]) {
        (Get, []) => (To::Templates, None),
        (Get | Head, [name]) => (To::Templates, Some(*name)),
        (Put | Post, [name]) => (To::PutTemplate, Some(*name)),
        (Delete, [name]) => (To::DeleteTemplate, Some(*name)),
        _ => return None,
    };
    Some((Route::Node(route), None, name))
}

fn of_indices<'r>(method: RestMethod, path: &[&'r str]) -> Found<'r> {
    use IndexRoute as To;
    use RestMethod::{Delete, Get, Head, Post, Put};
    let is_name = |index: &str| !index.starts_with('_');
    let (route, names, name) = match (method, path) {
        (Put, [index]) if is_name(index) => (To::Create, Some(*index), None),
        (Delete, [index]) if is_name(index) || *index == "_all" => (To::Delete, Some(*index), None),
        (Head, [index]) => (To::Exists, Some(*index), None),
        (Get, [index]) if is_name(index) || *index == "_all" => (To::Get, Some(*index), None),
        (Get, ["_mapping"]) => (To::Mapping, None, None),
        (Get, [index, "_mapping"]) => (To::Mapping, Some(*index), None),
        (Put | Post, [index, "_mapping" | "_mappings"]) => (To::PutMapping, Some(*index), None),
        (Get, ["_mapping", "field", fields]) => (To::FieldMapping, None, Some(*fields)),
        (Get, [index, "_mapping", "field", fields]) => (To::FieldMapping, Some(*index), Some(*fields)),
        (Get, ["_settings"]) => (To::Settings, None, None),
        (Get, ["_settings", name]) => (To::Settings, None, Some(*name)),
        (Get, [index, "_settings"]) => (To::Settings, Some(*index), None),
        (Get, [index, "_settings", name]) => (To::Settings, Some(*index), Some(*name)),
        (Put, ["_settings"]) => (To::PutSettings, None, None),
        (Put, [index, "_settings"]) => (To::PutSettings, Some(*index), None),
        (Post, [index, "_open"]) => (To::Open, Some(*index), None),
        (Post, [index, "_close"]) => (To::Close, Some(*index), None),
        (Post, ["_aliases"]) => (To::UpdateAliases, None, None),
        (Get, ["_alias" | "_aliases"]) => (To::Aliases, None, None),
        (Get | Head, ["_alias", name]) => (To::Aliases, None, Some(*name)),
        (Get, [index, "_alias"]) => (To::Aliases, Some(*index), None),
        (Get | Head, [index, "_alias", name]) => (To::Aliases, Some(*index), Some(*name)),
        (Put | Post, [index, "_alias" | "_aliases", name]) => (To::PutAlias, Some(*index), Some(*name)),
        (Delete, [index, "_alias" | "_aliases", name]) => (To::DeleteAlias, Some(*index), Some(*name)),
        _ => return None,
    };
    Some((Route::Index(route), names, name))
}

fn of_maintenance<'r>(method: RestMethod, path: &[&'r str]) -> Found<'r> {
    use IndexRoute as To;
    use RestMethod::{Get, Post};
    let (route, names, name) = match (method, path) {
        (Get | Post, ["_refresh"]) => (To::Refresh, None, None),
        (Get | Post, [index, "_refresh"]) => (To::Refresh, Some(*index), None),
        (Get | Post, ["_flush"]) => (To::Flush, None, None),
        (Get | Post, [index, "_flush"]) => (To::Flush, Some(*index), None),
        (Post, ["_forcemerge"]) => (To::ForceMerge, None, None),
        (Post, [index, "_forcemerge"]) => (To::ForceMerge, Some(*index), None),
        (Post, ["_cache", "clear"]) => (To::ClearCache, None, None),
        (Post, [index, "_cache", "clear"]) => (To::ClearCache, Some(*index), None),
        (Get, ["_stats"]) => (To::Stats, None, None),
        (Get, ["_stats", metric]) => (To::Stats, None, Some(*metric)),
        (Get, [index, "_stats"]) => (To::Stats, Some(*index), None),
        (Get, [index, "_stats", metric]) => (To::Stats, Some(*index), Some(*metric)),
        (Get | Post, ["_analyze"]) => (To::Analyze, None, None),
        (Get | Post, [index, "_analyze"]) => (To::Analyze, Some(*index), None),
        (Get | Post, ["_field_caps"]) => (To::FieldCaps, None, None),
        (Get | Post, [index, "_field_caps"]) => (To::FieldCaps, Some(*index), None),
        (Get, ["_resolve", "index", names]) => (To::Resolve, Some(*names), None),
        _ => return None,
    };
    Some((Route::Index(route), names, name))
}

fn of_searches<'r>(method: RestMethod, path: &[&'r str]) -> Found<'r> {
    use RestMethod::{Delete, Get, Post};
    use SearchRoute as To;
    if let (Post, ["_delete_by_query" | "_update_by_query" | "_reindex", id, "_rethrottle"]) = (method, path) {
        return Some((Route::Node(NodeRoute::Rethrottle), None, Some(*id)));
    }
    let (route, names, name) = match (method, path) {
        (Get | Post, ["_search"]) => (To::Search, None, None),
        (Get | Post, ["_search", "scroll"]) => (To::Scroll, None, None),
        (Get | Post, ["_search", "scroll", id]) => (To::Scroll, None, Some(*id)),
        (Delete, ["_search", "scroll"]) => (To::ClearScroll, None, None),
        (Delete, ["_search", "scroll", ids]) => (To::ClearScroll, None, Some(*ids)),
        (Post, [index, "_pit"]) => (To::OpenPoint, Some(*index), Some("id")),
        (Post, [index, "_search", "point_in_time"]) => (To::OpenPoint, Some(*index), Some("pit_id")),
        (Delete, ["_pit"] | ["_search", "point_in_time"]) => (To::ClosePoint, None, None),
        (Get, ["_search", "point_in_time", "_all"]) => (To::Points, None, None),
        (Delete, ["_search", "point_in_time", "_all"]) => (To::CloseAllPoints, None, None),
        (Get | Post, [index, "_search"]) => (To::Search, Some(*index), None),
        (Get | Post, ["_msearch"]) => (To::MultiSearch, None, None),
        (Get | Post, [index, "_msearch"]) => (To::MultiSearch, Some(*index), None),
        (Get | Post, ["_count"]) => (To::Count, None, None),
        (Get | Post, [index, "_count"]) => (To::Count, Some(*index), None),
        (Get | Post, ["_validate", "query"]) => (To::Validate, None, None),
        (Get | Post, [index, "_validate", "query"]) => (To::Validate, Some(*index), None),
        (Post, [index, "_delete_by_query"]) => (To::DeleteByQuery, Some(*index), None),
        (Post, [index, "_update_by_query"]) => (To::UpdateByQuery, Some(*index), None),
        (Post, ["_reindex"]) => (To::Reindex, None, None),
        _ => return None,
    };
    Some((Route::Search(route), names, name))
}

fn of_documents<'r>(method: RestMethod, path: &[&'r str]) -> Found<'r> {
    use DocumentRoute as To;
    use RestMethod::{Delete, Get, Head, Post, Put};
    let (route, names, name) = match (method, path) {
        (Post | Put, ["_bulk"]) => (To::Bulk, None, None),
        (Post | Put, [index, "_bulk"]) => (To::Bulk, Some(*index), None),
        (Get | Post, ["_mget"]) => (To::MultiGet, None, None),
        (Get | Post, [index, "_mget"]) => (To::MultiGet, Some(*index), None),
        (Post, [index, "_doc"]) => (To::Index, Some(*index), None),
        (Put | Post, [index, "_doc", id]) => (To::Index, Some(*index), Some(*id)),
        (Put | Post, [index, "_create", id]) => (To::Create, Some(*index), Some(*id)),
        (Get | Head, [index, "_doc", id]) => (To::Get, Some(*index), Some(*id)),
        (Get | Head, [index, "_source", id]) => (To::Source, Some(*index), Some(*id)),
        (Delete, [index, "_doc", id]) => (To::Delete, Some(*index), Some(*id)),
        (Post, [index, "_update", id]) => (To::Update, Some(*index), Some(*id)),
        _ => return None,
    };
    Some((Route::Document(route), names, name))
}
