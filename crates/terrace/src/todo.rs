//! `terrace todo`: the messages that need a person.

use std::path::Path;
use std::process::ExitCode;

use interop::running::{TodoItem, TodoPage, TodoRequest};
use interop::todo::{TodoChange, TodoNote};
use node::control;
use serde_json::json;

use crate::cli::TodoCommand;
use crate::show::{TextTable, time};

/// Runs one of the commands.
pub fn run(command: TodoCommand) -> anyhow::Result<ExitCode> {
    let (id, change, place) = match command {
        TodoCommand::List { owner, done, limit, place, json } => return list(&place.data, owner, done, (limit, json)),
        TodoCommand::Take { id, place } => (id, TodoChange::Take, place),
        TodoCommand::Assign { id, user, place } => (id, TodoChange::Assign(user), place),
        TodoCommand::Comment { id, text, place } => (id, TodoChange::Comment(text), place),
        TodoCommand::Done { id, place } => (id, TodoChange::Done, place),
    };
    let request = TodoRequest::Change { id, change };
    let note: TodoNote = control::read_response(control::request(&place.data, &format!("todo {}", json!(request)))?)?;
    let owner = note.owner.map_or_else(|| "nobody takes care of it".to_owned(), |owner| format!("owner {owner}"));
    println!("message {id}: {owner}{}", if note.done { ", done" } else { "" });
    Ok(ExitCode::SUCCESS)
}

fn list(data: &Path, owner: Option<String>, done: bool, (limit, json): (usize, bool)) -> anyhow::Result<ExitCode> {
    let mut items: Vec<TodoItem> = Vec::new();
    let mut after = 0;
    let is_full = |items: &[TodoItem]| limit > 0 && items.len() >= limit;
    while !is_full(&items) {
        let left = limit.saturating_sub(items.len());
        let request = TodoRequest::List { after, limit: left, owner: owner.clone(), done };
        let page: TodoPage = control::read_response(control::request(data, &format!("todo {}", json!(request)))?)?;
        items.extend(page.items);
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    if json {
        items.iter().for_each(|item| println!("{}", json!(item)));
        return Ok(ExitCode::SUCCESS);
    }
    if items.is_empty() {
        println!("no message needs a person");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = TextTable::new(&["message", "received", "service", "why", "detail", "owner", "last comment"]);
    for item in &items {
        let why = if item.done { format!("{}, done", item.reason.name()) } else { item.reason.name().to_owned() };
        let comment = item.comments.last().map(|last| format!("{}: {}", last.by, last.text));
        table.row(&[
            &item.id.to_string(),
            &time(item.received_us),
            &item.service,
            &why,
            &item.detail,
            item.owner.as_deref().unwrap_or("-"),
            comment.as_deref().unwrap_or("-"),
        ]);
    }
    print!("{table}");
    Ok(ExitCode::SUCCESS)
}
