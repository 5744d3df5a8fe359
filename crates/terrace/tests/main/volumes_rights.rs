//! Who opens the exports of a running node: its own user everything, and over TCP nobody without a role.

use std::time::Duration;

use nbd::{ClientOptions, NbdDevice, NbdError, NbdUri};

use crate::node::{Bed, until};
use crate::volumes::{client_of, read, report, volume, write};

#[test]
fn the_node_s_own_user_opens_every_export_and_over_tcp_nobody_learns_of_one_without_a_role() {
    let bed = Bed::new();
    for anonymous in ["", "anonymous = \"nobody-yet\"\n"] {
        bed.configure(&format!("[volumes]\nlisten = \"127.0.0.1:0\"\n{anonymous}"));
        if anonymous.is_empty() {
            volume(&bed, &["create", "v", "--size", "4MiB"]);
        }
        let node = bed.start();
        if anonymous.is_empty() {
            volume(&bed, &["export", "v"]);
        }
        let device = client_of(&bed, "v");
        assert!(write(&device, 7, 1) && read(&device, 7) == 1);
        let mut address = None;
        until("it has an address over TCP", || {
            let uris = report(&bed, "v")["export"]["uris"].as_array().cloned().unwrap_or_default();
            address =
                uris.iter().filter_map(|uri| uri.as_str()).find(|uri| uri.starts_with("nbd://")).map(str::to_owned);
            address.is_some()
        });
        let address = address.expect("it was found");
        let refused = ["v", "absent"].map(|name| {
            let uri: NbdUri = address.replace("/v", &format!("/{name}")).parse().expect("an address");
            let wait = Duration::from_millis(1);
            match NbdDevice::connect(ClientOptions { reconnect_for: wait, ..ClientOptions::new(uri) }) {
                Err(NbdError::Refused { source, .. }) => source.to_string(),
                other => panic!("{name} over TCP: {other:?}"),
            }
        });
        assert!(refused[0].contains("who you are is not known") && refused[0] == refused[1], "{refused:?}");
        assert!(bed.log().contains("a login failed"), "{}", bed.log());
        drop(device);
        node.stop();
    }
    let audit = bed.run(&["audit", "list", "--data"]).printed();
    assert!(audit.contains("volume.open") && audit.contains("login"), "{audit}");
}
