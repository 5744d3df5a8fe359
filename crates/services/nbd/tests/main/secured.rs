//! The client inside TLS: who the server and the client are is checked on both sides, and nothing is sent before.

use std::path::Path;

use device::Device;
use nbd::{ClientOptions, ClientTls, Export, NbdDevice, NbdError, NbdUri, ServerOptions, ServerTls};

use crate::rig::{Rig, memory};
use crate::security::certificates;
use crate::using::{BLOCK, all_of, quick};

/// A server that requires TLS, and certificates of clients.
fn rig(folder: &Path) -> Rig {
    certificates(folder);
    let tls = Some(ServerTls {
        certificate: folder.join("certificate.pem"),
        key: folder.join("key.pem"),
        client_authority: Some(folder.join("authority.pem")),
        client_revocations: None,
        required: true,
    });
    Rig::with(ServerOptions { workers: 2, tls, ..ServerOptions::default() }, [Export::new("disk", memory(4 << 20))])
}

/// The client with a certificate of the authority in `folder`.
fn client(folder: &Path, uri: NbdUri) -> ClientOptions {
    let own = Some((folder.join("client.pem"), folder.join("client-key.pem")));
    let tls = Some(ClientTls { authority: folder.join("authority.pem"), own, server_name: None });
    ClientOptions { tls, ..quick(NbdUri { tls: true, ..uri }) }
}

#[test]
fn both_sides_show_certificates_and_everything_is_as_without_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let rig = rig(folder.path());
    let unix = client(folder.path(), NbdUri::unix(&rig.unix, "disk"));
    let tcp = client(folder.path(), NbdUri::tcp("localhost", rig.tcp.port(), "disk"));
    for options in [unix, tcp] {
        let device = NbdDevice::connect(options).expect("opens");
        let bytes: Vec<u8> = (0..3usize << 20).map(|at| (at % 251) as u8).collect();
        device.write(BLOCK as u64, &bytes).expect("write");
        device.flush().expect("flush");
        assert!(all_of(&*device)[BLOCK..][..bytes.len()] == bytes);
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let device = &device;
                scope.spawn(move || {
                    for turn in 0..50 {
                        device.write_flush(thread * 4096, &[turn; BLOCK]).expect("write_flush");
                    }
                });
            }
        });
        assert!(all_of(&*device)[..8 * BLOCK].iter().all(|byte| *byte == 49));
    }
}

#[test]
fn who_is_not_who_they_should_be_gets_nothing() {
    let (folder, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let rig = rig(folder.path());
    certificates(other.path());
    let right = client(folder.path(), NbdUri::unix(&rig.unix, "disk"));
    let tls = || right.tls.clone().expect("certificates");
    let with = |tls: ClientTls| ClientOptions { tls: Some(tls), ..right.clone() };
    let strange = (other.path().join("client.pem"), other.path().join("client-key.pem"));
    for (name, options) in [
        ("no certificate of the client", with(ClientTls { own: None, ..tls() })),
        ("one of another authority", with(ClientTls { own: Some(strange), ..tls() })),
        ("a server of another authority", with(ClientTls { authority: other.path().join("authority.pem"), ..tls() })),
        ("a server of another name", with(ClientTls { server_name: Some("elsewhere".to_owned()), ..tls() })),
    ] {
        let result = NbdDevice::connect(options);
        assert!(matches!(result, Err(NbdError::Connect { .. })), "{name}: {result:?}");
    }
    let plain = NbdDevice::connect(quick(NbdUri::unix(&rig.unix, "disk")));
    assert!(matches!(&plain, Err(NbdError::Refused { .. })), "{plain:?}");
    let no_certificates = NbdDevice::connect(ClientOptions { tls: None, ..right.clone() });
    assert!(matches!(no_certificates, Err(NbdError::Address { .. })));
    let none = with(ClientTls { authority: other.path().join("none.pem"), ..tls() });
    assert!(matches!(NbdDevice::connect(none), Err(NbdError::Tls { .. })));
    assert_eq!(rig.sessions(), 0);
    // A server without TLS is not used without it either.
    let bare = Rig::of(memory(1 << 20));
    let refused = NbdDevice::connect(client(folder.path(), NbdUri::unix(&bare.unix, "disk")));
    assert!(matches!(&refused, Err(error @ NbdError::Refused { .. }) if error.to_string().contains("no TLS")));
    NbdDevice::connect(right).expect("opens");
}
