//! Generations of the production: what was loaded is kept, each message says which one decided, an earlier one comes back, and a
//! power failure leaves no message without its generation.

use std::fs;
use std::sync::Arc;

use device::{CrashShelf, Shelf};
use interop::InteropError;
use interop::generations::{FileChange, GenerationContent, Generations, LoadCause, LoadKind};
use interop::production::Values;
use interop::running::{GenerationDifference, GenerationList, ProductionRequest, WentBack};
use node::NodeError;
use serde::de::DeserializeOwned;
use store::{Options, Places, Store};

use crate::receiver::Accepting;
use crate::rig::{Rig, Running, adt};

async fn answered<T: DeserializeOwned>(running: &Running, request: ProductionRequest) -> Result<T, String> {
    match running.request(&request.line()).await {
        Ok(answer) => Ok(serde_json::from_value(answer).expect("it is one")),
        Err(InteropError::Node(NodeError::NodeRefused(why))) => Err(why),
        Err(other) => panic!("{other}"),
    }
}

async fn list(running: &Running) -> GenerationList {
    answered(running, ProductionRequest::Generations { last: 0 }).await.expect("it is answered")
}

async fn diff(running: &Running, from: &str, to: &str) -> Result<GenerationDifference, String> {
    answered(running, ProductionRequest::Diff { from: from.to_owned(), to: to.to_owned() }).await
}

async fn back(running: &Running, generation: u32) -> Result<WentBack, String> {
    answered(running, ProductionRequest::Back { generation }).await
}

async fn reload(running: &Running) -> Vec<String> {
    serde_json::from_value(running.request("reload").await.expect("it is right")).expect("texts")
}

/// The usual production, whose rules look a ward up.
async fn rig() -> (Rig, Accepting) {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.write("tables/wards.csv", "ICU,Intensive care\n").write("transforms/t.hl7t", "set PV1-3 = \"X\"\n");
    (rig, out)
}

/// The generation that decided about each stored message, oldest first.
fn deciders(running: &Running) -> Vec<u32> {
    running.stored().iter().map(|(_, stored)| stored.generation).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_changed_load_is_a_generation_a_changed_table_is_a_change_and_each_message_says_which_decided() {
    let (rig, _out) = rig().await;
    let running = rig.start().await;
    let mut sender = running.sender().await;
    sender.accepted(&adt("1")).await;
    assert_eq!(reload(&running).await, [""; 0], "nothing has changed, and there is no new generation");
    rig.write("tables/wards.csv", "ICU,Intensive care\nER,Emergency\n");
    let generation = "this is generation 2; `terrace production diff 1 2` shows it";
    assert_eq!(reload(&running).await, ["tables/wards.csv changed", generation]);
    sender.accepted(&adt("2")).await;
    rig.write("rules/main.rules", "match first\nrule every { send to out using t }\n").remove("tables/wards.csv");
    let changes = reload(&running).await;
    assert_eq!(changes[..2], ["rules/main.rules changed", "tables/wards.csv went"], "{changes:?}");
    sender.accepted(&adt("3")).await;
    assert_eq!(deciders(&running), [1, 2, 3]);
    // What is refused has one too; what is wrong is none.
    sender.exchange("MSH|^~\\&|A|B|||1||ADT^A01||P|2.5\r").await;
    rig.write("rules/main.rules", "match first\nrule every { send to nowhere }\n");
    running.request("reload").await.expect_err("it is wrong");
    let found = list(&running).await;
    let rows: Vec<_> = found.generations.iter().map(|row| (row.number, row.how, row.by.as_str())).collect();
    let (reload, start) = (LoadKind::Reload, LoadKind::Start);
    // Of the node's own role, the user of the machine is named.
    let who = rows.first().map_or("", |row| row.2);
    assert!(!who.is_empty() && who != "the start of the node", "{rows:?}");
    assert_eq!(rows, [(3, reload, who), (2, reload, who), (1, start, "the start of the node")]);
    assert_eq!((found.in_force, running.status().generation), (Some(3), 3));
    assert_eq!(deciders(&running), [1, 2, 3, 3]);
    running.stop().await;
    // A start with the same folder is the same generation; with another one it is new.
    rig.write("rules/main.rules", "match first\nrule every { send to out using t }\n");
    let running = rig.start().await;
    assert_eq!(list(&running).await.in_force, Some(3));
    running.stop().await;
    rig.write("tables/wards.csv", "ICU,Intensive care\n");
    let running = rig.start().await;
    assert_eq!(list(&running).await.in_force, Some(4));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_was_looked_at_is_loaded_as_it_was_shown_or_not_at_all() {
    let (rig, _out) = rig().await;
    let running = rig.start().await;
    rig.write("tables/wards.csv", "ER,Emergency\n");
    let shown = diff(&running, "1", "disk").await.expect("it is answered").folder.expect("it can be loaded");
    rig.write("transforms/t.hl7t", "set PV1-3 = \"Y\"\n");
    let load = format!("reload {shown}");
    let refused = running.request(&load).await.expect_err("it is another folder").to_string();
    assert!(refused.contains("was changed since it was looked at"), "{refused}");
    assert_eq!(list(&running).await.in_force, Some(1));
    rig.write("transforms/t.hl7t", "set PV1-3 = \"X\"\n");
    running.request(&load).await.expect("it is as it was shown");
    assert_eq!(list(&running).await.in_force, Some(2));
    assert_eq!(diff(&running, "1", "2").await.expect("it is answered").folder, None, "neither is the folder");
    rig.write("rules/main.rules", "match first\nrule every { send to nowhere }\n");
    assert_eq!(diff(&running, "2", "disk").await.expect("it is shown").folder, None, "it cannot be loaded");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn differences_show_what_a_reload_would_change_and_the_rule_of_then() {
    let (rig, _out) = rig().await;
    let running = rig.start().await;
    running.sender().await.accepted(&adt("1")).await;
    rig.write("rules/main.rules", "match first\nrule every {\n  send to out\n}\n")
        .write("tables/wards.csv", "ER,Emergency\n");
    let found = diff(&running, "1", "disk").await.expect("it is answered");
    let files: Vec<_> = found.files.iter().map(|file| (file.path.as_str(), file.change)).collect();
    assert_eq!(files, [("rules/main.rules", FileChange::Changed), ("tables/wards.csv", FileChange::Changed)]);
    assert!(found.files[0].lines.contains("+rule every {"), "{found:?}");
    // Entries of tables may be about patients.
    assert!(found.files[1].lines.is_empty() && (found.files[1].added, found.files[1].removed) == (1, 1), "{found:?}");
    running.grant_bodies().await;
    let found = diff(&running, "1", "disk").await.expect("it is answered");
    assert_eq!(found.files[1].lines, "-ICU,Intensive care\n+ER,Emergency\n");
    reload(&running).await;
    assert_eq!(diff(&running, "2", "disk").await.expect("it is answered").files, []);
    for (from, to) in [("1", "9"), ("0", "disk"), ("x", "1"), ("-1", "1"), ("1", "../1")] {
        diff(&running, from, to).await.expect_err(to);
    }
    let (_, stored) = running.stored().remove(0);
    let rule =
        ProductionRequest::Rule { generation: stored.generation, service: stored.service, reason: stored.reason };
    let text: Option<String> = answered(&running, rule).await.expect("it is answered");
    let text = text.expect("the rule is known");
    assert!(text.starts_with("rules/main.rules:2\n  rule all"), "{text}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_generation_is_loaded_again_as_a_new_one_and_the_folder_stays() {
    let (rig, out) = rig().await;
    let running = rig.start().await;
    let mut sender = running.sender().await;
    sender.accepted(&adt("1")).await;
    let dropping = "match first\nrule none { drop \"not now\" }\n";
    rig.write("rules/main.rules", dropping);
    reload(&running).await;
    sender.accepted(&adt("2")).await;
    let made = back(&running, 1).await.expect("it is loaded");
    assert_eq!(made.generation, 3);
    let on_disk: Vec<_> = made.on_disk.iter().map(|file| (file.path.as_str(), file.change)).collect();
    assert_eq!(on_disk, [("rules/main.rules", FileChange::Changed)]);
    assert_eq!(fs::read_to_string(rig.folder().join("rules/main.rules")).expect("it is there"), dropping);
    sender.accepted(&adt("3")).await;
    assert_eq!((deciders(&running), out.received(2).await), (vec![1, 2, 3], vec!["1".to_owned(), "3".to_owned()]));
    assert_eq!(list(&running).await.generations[0].how, LoadKind::Back(1));
    // A resend was decided by the generation of its origin.
    let (id, _) = running.stored().remove(0);
    running.request(&format!("resend {id}")).await.expect("it goes out again");
    assert_eq!(deciders(&running), [1, 2, 3, 1]);
    back(&running, 9).await.expect_err("there is none");
    // What cannot be loaded any more leaves all as it is.
    rig.write(
        "services/in.toml",
        &format!("{}[tls]\ncertificate = \"c.pem\"\nkey = \"c.key\"\n", read(&rig, "services/in.toml")),
    );
    running.request("reload").await.expect_err("there is no certificate");
    assert_eq!(list(&running).await.in_force, Some(3));
    running.stop().await;
}

fn read(rig: &Rig, path: &str) -> String {
    fs::read_to_string(rig.folder().join(path)).expect("it is there")
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_the_environment_are_in_force_and_a_changed_one_is_a_change() {
    let (mut rig, out) = rig().await;
    let port = out.address.port();
    rig.operation("out", out.address, "");
    let operation = read(&rig, "operations/out.toml").replace(&out.address.to_string(), "${receiver}");
    rig.write("operations/out.toml", &operation).write(
        "values.toml",
        &format!("[default]\nreceiver = \"127.0.0.1:1\"\n[live]\nreceiver = \"127.0.0.1:{port}\"\n"),
    );
    rig.options.values = Values::new(Some("live".to_owned()), Default::default()).expect("they can be");
    let running = rig.start_on_files().await;
    running.sender().await.accepted(&adt("1")).await;
    assert_eq!(out.received(1).await, ["1"]);
    let texts: std::collections::BTreeMap<String, Option<String>> =
        answered(&running, ProductionRequest::Texts { generation: 1 }).await.expect("it is answered");
    assert!(texts["operations/out.toml"].as_deref().is_some_and(|text| text.contains("${receiver}")), "{texts:?}");
    assert!(!texts.contains_key("values (in force)"));
    running.stop().await;
    rig.options.values = Values::default();
    let running = rig.start_on_files().await;
    let found = diff(&running, "1", "2").await.expect("it is answered");
    let files: Vec<_> = found.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(files, ["values (in force)"]);
    // The values are of the node: going back takes those of now.
    back(&running, 1).await.expect("it is loaded");
    assert_eq!(list(&running).await.in_force, Some(2), "it is what is in force already");
    running.stop().await;
}

/// The smallest size of each structure, without threads: every run is the same.
fn options() -> Options {
    let journal = journal::Options {
        segment_bytes: 64 << 10,
        buffer_bytes: 16 << 10,
        preparation: journal::Preparation::Inline,
        identity: 0x5eed_1d00,
        ..journal::Options::default()
    };
    Options {
        journal,
        page_bytes: 4096,
        cache_bytes: 4 << 20,
        data_device_bytes: 1 << 20,
        images_device_bytes: 64 << 10,
        background: false,
        clock: Arc::new(|| 1),
        ..Options::default()
    }
}

fn open(shelf: &Arc<CrashShelf>) -> (Store, Generations) {
    let shelf: Arc<dyn Shelf> = shelf.clone();
    let places = Places { journal: shelf.clone(), images: shelf.clone(), data: shelf };
    let (store, _) = Store::open(places, options()).expect("it opens");
    (store.clone(), Generations::of(store))
}

#[test]
fn a_power_failure_at_any_point_leaves_every_kept_generation_with_all_its_texts() {
    let shelf = Arc::new(CrashShelf::new(16));
    let (store, generations) = open(&shelf);
    let content = |number: u32| {
        let lines: String = (0..60).map(|at| format!("{at},{}\n", at * number)).collect();
        let files = [("rules/a.rules".to_owned(), "match all\n".into()), ("tables/t.csv".to_owned(), lines.into())];
        GenerationContent { name: "p".to_owned(), folder: "/nonexistent".into(), files: files.into() }
    };
    let mut acknowledged = vec![(shelf.operations(), 0)];
    for number in 1..=10 {
        let cause = LoadCause { by: "ann".to_owned(), kind: LoadKind::Reload };
        let kept = generations.keep(&content(number), &cause, 1).expect("it is kept");
        assert_eq!(kept.number, number);
        if number == 5 {
            store.checkpoint().expect("it is written");
        }
        acknowledged.push((shelf.operations(), number));
    }
    let first = acknowledged[0].0;
    let mut images = 0;
    for point in shelf.points().filter(|point| *point >= first) {
        let all: Vec<_> = shelf.images(point).collect();
        let Some(image) = all.get(point % all.len().max(1)) else { continue };
        let (_store, after) = open(&Arc::new(image.shelf()));
        let least = acknowledged.iter().filter(|(operations, _)| *operations <= point).map(|(_, number)| *number).max();
        let newest = after.newest().expect("it reads").map_or(0, |newest| newest.number);
        assert!(newest >= least.unwrap_or(0), "{image}: {newest} of {least:?}");
        assert_eq!(after.check().expect("it reads"), [""; 0], "{image}");
        for number in 1..=newest {
            let generation = after.get(number).expect("it reads").unwrap_or_else(|| panic!("{image}: {number}"));
            let texts = after.texts(&generation).expect("they read");
            let wanted: Vec<_> = content(number).files.into_values().map(Some).collect();
            assert_eq!(texts.into_values().collect::<Vec<_>>(), wanted, "{image}: {number}");
        }
        images += 1;
    }
    assert!(images > 20, "only {images} images: too few to mean anything");
}
