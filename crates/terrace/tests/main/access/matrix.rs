//! Role x action x port: for each action the real requests that need it, sent by a role that has it and little else, by one
//! that has everything else, by one that has nothing, an administrator, a locked and an expired one.
//!
//! What is expected of a cell is derived from the table alone ([`super::ways`]): a request is let through exactly if the
//! role has all rights that it needs. So each right is refused what every other one opens.

use std::collections::BTreeMap;

use bench::postgres::Client;
use nbd::protocol::{command, option};
use node::identity::Action;
use serde_json::json;

use super::ports::{Control, Http, Nbd, Outcome, outcome_of, sql, sql_login};
use super::rig::{
    Authority, PASSWORD, SETTINGS, Standing, TestRole, make_role, nbd_address, write_data, write_objects,
    write_production,
};
use super::ways::{self, Request, Right, Success, Way, Ways};
use crate::node::{Bed, Node, until};

/// All rights of the table.
fn all_rights() -> Vec<Right> {
    let mut all: Vec<Right> = vec![(Action::NodeStop, "node")];
    for action in Action::ALL {
        all.extend(rights_of(*action));
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// What the requests of an action need together: the action itself, and to get as far as being asked for it.
fn rights_of(action: Action) -> Vec<Right> {
    let Ways::Of(ways) = ways::of(action) else { return Vec::new() };
    let needs = ways.iter().filter(|way| !way.is_mixed).flat_map(|way| way.needs.iter().copied());
    let mut rights: Vec<Right> = needs.collect();
    rights.sort_unstable();
    rights.dedup();
    rights
}

/// The node, and the connections over which all requests go.
struct Clients<'n> {
    node: &'n Node<'n>,
    control: Control,
    http: Http,
    console: Http,
    nbd: std::net::SocketAddr,
    /// One of each role that may log in.
    sql: BTreeMap<String, Result<Client, Outcome>>,
    /// A connection of another user, and its process number.
    pid: String,
    id: u64,
    folder: String,
    number: u64,
}

impl Clients<'_> {
    /// A request with its placeholders filled in.
    fn filled(&mut self, text: &str) -> String {
        self.number += 1;
        let soon = node::Clock::system().now_us() + 300_000_000;
        text.replace("{id}", &self.id.to_string())
            .replace("{n}", &self.number.to_string())
            .replace("{pid}", &self.pid)
            .replace("{soon}", &soon.to_string())
            .replace("{folder}", &format!("{}/backup{}", self.folder, self.number))
    }

    fn send(&mut self, role: &TestRole, request: Request) -> Outcome {
        match request {
            Request::Control(line) => {
                let line = self.filled(line);
                self.control.send(Some(&role.token), &line)
            }
            Request::Sql(statement) => {
                let (statement, address) = (self.filled(statement), self.node.sql());
                let login = || sql_login(address, &role.name, Some(PASSWORD));
                match self.sql.entry(role.name.clone()).or_insert_with(login) {
                    Ok(client) => sql(client, &statement),
                    Err(outcome) => outcome.clone(),
                }
            }
            Request::Search(method, target, body) => {
                let target = self.filled(target);
                self.http.send(&role.token, (method, &target, body))
            }
            // A connection for each: the listener keeps a silent one for two minutes.
            Request::Metrics(target) => Http::open(self.node.metrics()).send(&role.token, ("GET", target, "")),
            Request::Console(method, target) => {
                let target = self.filled(target);
                self.console.send(&role.token, (method, &target, ""))
            }
            Request::NbdList => {
                self.opened(role, |nbd| nbd.option(option::LIST, &[]).map_or_else(broken, |told| outcome_of(&told)))
            }
            Request::NbdRead => self.transmitted(role, command::READ, &[]),
            Request::NbdWrite => self.transmitted(role, command::WRITE, &[7; 4096]),
        }
    }

    fn opened(&self, role: &TestRole, work: impl FnOnce(&mut Nbd) -> Outcome) -> Outcome {
        Nbd::open(self.nbd, &role.tls).map_or_else(broken, |mut nbd| work(&mut nbd))
    }

    fn transmitted(&self, role: &TestRole, kind: u16, data: &[u8]) -> Outcome {
        self.opened(role, |nbd| match nbd.go("v") {
            Outcome::Answered(_) => nbd.command(kind, 4096, data),
            other => other,
        })
    }
}

/// A connection that was ended.
fn broken(error: std::io::Error) -> Outcome {
    Outcome::Refused(format!("ended: {error}"))
}

/// Whether a request was let through; none if the answer is neither that nor a refusal.
fn is_through(way: &Way, outcome: &Outcome) -> Option<bool> {
    match (way.success, outcome) {
        (_, Outcome::Refused(_)) => Some(false),
        (Success::Shows(wanted), Outcome::Answered(text)) => Some(text.contains(wanted)),
        // A message that a caller may not list is one that is not there.
        (Success::Shows(_), Outcome::Failed(text)) if text.contains("no message") => Some(false),
        (Success::Done | Success::Decided, Outcome::Answered(_)) | (Success::Decided, Outcome::Failed(_)) => Some(true),
        (Success::Done | Success::Shows(_), Outcome::Failed(_)) => None,
    }
}

/// The roles: one for each action with what its requests share, one for each action with everything else, and four more.
fn roles(control: &mut Control, authority: &Authority) -> Vec<TestRole> {
    let all = all_rights();
    let mut roles = Vec::new();
    for action in Action::ALL {
        let own: Vec<Right> = match ways::of(*action) {
            Ways::Of(_) => rights_of(*action),
            Ways::Stop => vec![(*action, "node")],
            Ways::Nowhere(_) => continue,
        };
        let others: Vec<Right> =
            all.iter().copied().filter(|right| right.0 != *action && right.0.is_grantable()).collect();
        roles.push(make_role(control, authority, (&format!("only-{}", action.name()), Standing::Plain), &own));
        roles.push(make_role(control, authority, (&format!("without-{}", action.name()), Standing::Plain), &others));
    }
    for (name, standing) in
        [("locked", Standing::Locked), ("expired", Standing::Expired), ("administrator", Standing::Administrator)]
    {
        roles.push(make_role(control, authority, (name, standing), &[]));
    }
    roles.push(make_role(control, authority, ("nobody", Standing::Plain), &[]));
    let all: Vec<Right> = all.into_iter().filter(|right| right.0.is_grantable()).collect();
    roles.push(make_role(control, authority, ("everything", Standing::Plain), &all));
    roles
}

/// Whether a role sends the requests of an action: one without an action sends those of this action only, all others all.
fn sends(role: &TestRole, action: Action) -> bool {
    role.name.strip_prefix("without-").is_none_or(|other| other == action.name())
}

/// Sends every request of every action; the lines of the table, and what is wrong.
fn play(clients: &mut Clients<'_>, roles: &[TestRole]) -> (Vec<String>, Vec<String>, usize) {
    let (mut lines, mut wrong, mut cells) = (Vec::new(), Vec::new(), 0);
    for action in Action::ALL {
        let ways = match ways::of(*action) {
            Ways::Of(ways) => ways,
            Ways::Nowhere(why) => {
                lines.push(format!("{:<18} -        no request: {why}", action.name()));
                continue;
            }
            Ways::Stop => continue,
        };
        for way in ways {
            let mut through = Vec::new();
            for role in roles.iter().filter(|role| sends(role, *action)) {
                let outcome = clients.send(role, way.request);
                let (found, expected) = (is_through(way, &outcome), way.needs.iter().all(|right| role.has(*right)));
                cells += 1;
                through.extend((found == Some(true)).then_some(role.name.as_str()));
                if found != Some(expected) {
                    let text: String = outcome.text().chars().take(300).collect();
                    let what = way.request.text();
                    wrong.push(format!("{} by {}, expected {expected}: {what}: {text}", action.name(), role.name));
                }
            }
            let (port, text) = (way.request.port(), way.request.text());
            lines.push(format!("{:<18} {port:<8} {text}: {}", action.name(), through.join(" ")));
        }
    }
    (lines, wrong, cells)
}

#[test]
fn every_action_over_every_port_is_let_through_with_its_right_and_refused_without() {
    let bed = Bed::new();
    let authority = Authority::new(&bed);
    write_production(&bed);
    bed.configure(SETTINGS);
    let node = bed.start();
    let mut control = Control::open(&bed.data());
    let id = write_objects(&bed, &node, &mut control);
    let administrator = make_role(&mut control, &authority, ("maker", Standing::Administrator), &[]);
    write_data(&node, &administrator);
    let roles = roles(&mut control, &authority);
    let nbd = nbd_address(&mut control);
    let mut marked = sql_login(node.sql(), "without-node-stop", None).expect("it may log in");
    let told = marked.query("SELECT pg_backend_pid() AS marked").expect("it has a number");
    let pid = told.rows[0][0].clone().expect("a number");
    let mut clients = Clients {
        node: &node,
        control,
        http: Http::open(node.search()),
        console: Http::open_console(node.console()),
        nbd,
        sql: BTreeMap::new(),
        pid,
        id,
        folder: bed.path("").display().to_string(),
        number: 0,
    };
    let everything = roles.last().expect("there are roles");
    let search = Request::Search("GET", "/.messages/_search", "");
    until("the message is indexed", || clients.send(everything, search).text().contains("NORTH"));
    let (lines, mut wrong, cells) = play(&mut clients, &roles);
    wrong.extend(stops(&mut clients.control, &roles));
    let table = lines.join("\n");
    assert!(wrong.is_empty(), "{table}\n\n{} of {cells} cells are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(cells > 2_500, "{cells} cells:\n{table}");
    println!("{cells} cells\n{table}");
    drop(marked);
    drop(clients);
    assert_eq!(node.ended(), Some(0), "the one with the right stopped it");
}

/// `stop`, by all who may not, and at last by one who may.
fn stops(control: &mut Control, roles: &[TestRole]) -> Vec<String> {
    let mut wrong = Vec::new();
    let may = |role: &&TestRole| role.has((Action::NodeStop, "node"));
    for role in roles.iter().filter(|role| !may(role) && sends(role, Action::NodeStop)) {
        let outcome = control.send(Some(&role.token), "stop");
        if !matches!(outcome, Outcome::Refused(_)) {
            wrong.push(format!("stop by {}: {outcome:?}", role.name));
            return wrong;
        }
    }
    let only = roles.iter().find(|role| role.name == "only-node-stop").expect("it was made");
    let outcome = control.send(Some(&only.token), "stop");
    if outcome != Outcome::Answered(json!(null).to_string()) {
        wrong.push(format!("stop by {}: {outcome:?}", only.name));
    }
    wrong
}
