//! Test: what `terrace plan` writes as terrace.toml, a node takes.

use catalogue::price::PriceDate;
use plan::mix::sizing::{SizingInput, sizing};
use plan::mix::{PlanRequest, Planning, PriceList, Server, Shortness, Target};

use super::Config;
use crate::cli;

const SERVERS: [&str; 3] = [
    "sockets = 2\ncores = 64\ndimm_slots = 16\nchannels = 8\nlanes = 32\nbays = 8\n",
    "sockets = 2\ncores = 32\ndimm_slots = 12\nchannels = 6\nbays = 8\ndram = 'ddr4-2666'\ndimms = ['16GiB']\n",
    "sockets = 1\ncores = 16\nvolumes = true\n[[instance]]\nname = 'm-large'\ncores = 16\nmemory = '64GiB'\nusd_per_month = 500\n",
];

#[test]
fn a_node_takes_the_settings_of_every_mix_that_a_plan_shows() {
    let input = SizingInput {
        messages_per_day: 1e5,
        message_bytes: 2048.0,
        retention_days: 365.0,
        queries_per_day: 0.0,
        query_pages: 1,
    };
    let folder = tempfile::tempdir().expect("a folder");
    let sized = sizing(&input, folder.path()).expect("a sizing");
    let mut modes = std::collections::BTreeSet::new();
    for server in SERVERS {
        let today = PriceDate::parse("2026-11").expect("a month");
        let request = PlanRequest {
            sources: vec![sized.source.clone()],
            short: Shortness::Take,
            server: Server::parse(server).expect("a server"),
            media: catalogue::media().to_vec(),
            prices: PriceList::new(&[], 36.0, today, false).expect("no prices"),
            target: Target::default(),
            without: Vec::new(),
            data_bytes: Some(sized.data_bytes),
            cpu_s: None,
            sessions: None,
            query: None,
            commits: Some(sized.commits),
            scale: sized.scale,
            assumed: Vec::new(),
        };
        let planning = Planning::of(request).expect("a plan");
        let mut texts = std::collections::BTreeSet::new();
        for planned in &planning.kept {
            texts.insert(planning.settings(&planned.mix).expect("settings"));
        }
        for text in texts {
            let args = cli::ServeArgs { config: None, data: None, production: None, bodies: None };
            let config: Config = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            config.plan(&args).unwrap_or_else(|error| panic!("{error:#}\n{text}"));
            modes.extend(text.lines().find(|line| line.starts_with("mode")).map(str::to_owned));
        }
    }
    assert!(modes.len() >= 2, "{modes:?}");
}
