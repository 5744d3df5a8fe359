//! Negotiation of both sides against each other, and of each side against wrong peers.

use super::asking::{Asking, AskingError, Opened, Progress, Refusal, Wish};
use super::negotiation::{
    Action, Contexts, Negotiation, OPTION_BYTES_MAX, OPTION_HEAD_BYTES, OptionFrame, Purpose, TlsPolicy, frame,
    greeting, refuse, reply,
};
use super::{ExportFacts, OPTION_MAGIC, answer, export_flag, option, put_string};

fn facts() -> ExportFacts {
    ExportFacts {
        name: "disk".to_owned(),
        description: "a disk".to_owned(),
        bytes: 1 << 30,
        flags: export_flag::HAS_FLAGS | export_flag::FLUSH,
        min_block: 1,
        preferred_block: 4096,
        max_payload: 32 << 20,
        has_epochs: true,
    }
}

/// A server with one export; what it does with an option, as the shell does it.
struct Peer {
    negotiation: Negotiation,
    input: Vec<u8>,
    is_open: Option<String>,
}

impl Peer {
    fn new(tls: TlsPolicy) -> Peer {
        Peer { negotiation: Negotiation::new(tls, 3).expect("known flags"), input: Vec::new(), is_open: None }
    }

    fn hear(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Action {
        self.input.extend_from_slice(bytes);
        let OptionFrame::Whole { option, length } = frame(&self.input) else { return Action::Continue };
        let data = self.input[OPTION_HEAD_BYTES..OPTION_HEAD_BYTES + length].to_vec();
        self.input.drain(..OPTION_HEAD_BYTES + length);
        let action = self.negotiation.apply(option, &data, out);
        match &action {
            Action::Find { name, purpose, wants_names } if name.starts_with("disk") => {
                self.negotiation.opened(*purpose, *wants_names, &facts(), out);
                self.is_open = (*purpose != Purpose::Look).then(|| name.clone());
            }
            Action::Find { .. } => refuse(option, answer::UNKNOWN, "no such export", out),
            Action::FindContexts { name, queries, set } => self.negotiation.contexts(name, queries, *set, true, out),
            Action::List => self.negotiation.list(["disk"].into_iter(), out),
            _ => {}
        }
        action
    }
}

/// Lets both talk, with a byte at a time, until the client is ready or gives up.
fn talk(peer: &mut Peer, wish: Wish) -> Result<Opened, AskingError> {
    let mut asking = Asking::new(wish);
    let (mut to_client, mut to_server) = (greeting().to_vec(), Vec::new());
    let mut received = Vec::new();
    let mut flags_left = 4;
    for _ in 0..10_000 {
        if !to_client.is_empty() {
            received.push(to_client.remove(0));
            let (used, progress) = asking.apply(&received, &mut to_server)?;
            received.drain(..used);
            match progress {
                Progress::Ready(opened) => return Ok(opened),
                Progress::StartTls => {
                    peer.negotiation.secured();
                    asking.secured(&mut to_server);
                }
                Progress::More => {}
            }
        } else if !to_server.is_empty() {
            let byte = to_server.remove(0);
            if flags_left > 0 {
                flags_left -= 1;
            } else if peer.hear(&[byte], &mut to_client) == Action::End {
                return Err(AskingError::Broken("the server ended"));
            }
        }
    }
    panic!("both wait");
}

fn wish(name: &str, tls: bool) -> Wish {
    Wish { name: name.to_owned(), tls, client: 0xabc }
}

#[test]
fn both_sides_agree_byte_by_byte_with_and_without_tls() {
    for (tls, wants) in
        [(TlsPolicy::Off, false), (TlsPolicy::Offered, false), (TlsPolicy::Offered, true), (TlsPolicy::Required, true)]
    {
        let mut peer = Peer::new(tls);
        let opened = talk(&mut peer, wish("disk@41", wants)).expect("they agree");
        assert_eq!((opened.facts.bytes, opened.facts.min_block, opened.facts.max_payload), (1 << 30, 1, 32 << 20));
        assert!(opened.structured && opened.allocation.is_some() && opened.facts.has_epochs);
        assert!(peer.negotiation.is_structured());
        assert_eq!(peer.is_open.as_deref(), Some("disk@41"));
        assert_eq!(peer.negotiation.contexts_for("disk@41"), Contexts { allocation: true, epoch: true, client: 0xabc });
        assert_eq!(peer.negotiation.contexts_for("disk@42"), Contexts::default(), "contexts are of one export");
    }
}

#[test]
fn refusals_have_their_reasons() {
    let refusal = |tls, name: &str, wants| match talk(&mut Peer::new(tls), wish(name, wants)) {
        Err(AskingError::Refused { kind, .. }) => kind,
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal(TlsPolicy::Off, "other", false), Refusal::Unknown);
    assert_eq!(refusal(TlsPolicy::Off, "disk", true), Refusal::NoTls);
    assert_eq!(refusal(TlsPolicy::Required, "disk", false), Refusal::TlsRequired);
}

fn answer_to(negotiation: &mut Negotiation, code: u32, data: &[u8]) -> (Action, u32) {
    let mut out = Vec::new();
    let action = negotiation.apply(code, data, &mut out);
    let kind = out.get(12..16).map_or(0, |kind| u32::from_be_bytes(kind.try_into().expect("four bytes")));
    (action, kind)
}

#[test]
fn each_option_that_makes_no_sense_is_refused_and_the_session_goes_on() {
    let mut name = Vec::new();
    put_string(&mut name, "disk");
    let with = |tail: &[u8]| [&name[..], tail].concat();
    let cases: &[(u32, Vec<u8>, u32)] = &[
        (99, vec![], answer::UNSUPPORTED),
        (option::LIST, vec![1], answer::INVALID),
        (option::STRUCTURED_REPLY, vec![1], answer::INVALID),
        (option::STARTTLS, vec![], answer::POLICY),
        (option::GO, vec![], answer::INVALID),
        (option::GO, with(&[0, 1]), answer::INVALID),
        (option::GO, with(&[0, 0, 0]), answer::INVALID),
        (option::INFO, vec![0xff; 9], answer::INVALID),
        (option::SET_META_CONTEXT, with(&[0, 0, 0, 0]), answer::INVALID),
        (option::EXPORT_NAME, vec![], 0),
    ];
    for (code, data, expected) in cases {
        let mut negotiation = Negotiation::new(TlsPolicy::Off, 1).expect("known flags");
        let (action, kind) = answer_to(&mut negotiation, *code, data);
        assert_eq!(kind, *expected, "option {code} with {data:?}");
        assert_ne!(action, Action::End);
    }
    assert!(Negotiation::new(TlsPolicy::Off, 0).is_none(), "not the fixed newstyle");
    assert!(Negotiation::new(TlsPolicy::Off, 1 | 1 << 9).is_none(), "an unknown flag");
}

#[test]
fn a_count_of_queries_beyond_the_data_takes_no_memory() {
    let mut negotiation = Negotiation::new(TlsPolicy::Off, 3).expect("known flags");
    answer_to(&mut negotiation, option::STRUCTURED_REPLY, &[]);
    let mut data = Vec::new();
    put_string(&mut data, "disk");
    data.extend_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(answer_to(&mut negotiation, option::SET_META_CONTEXT, &data).1, answer::INVALID);
}

#[test]
fn a_failed_choice_of_contexts_ends_the_earlier_one() {
    let mut negotiation = Negotiation::new(TlsPolicy::Off, 3).expect("known flags");
    answer_to(&mut negotiation, option::STRUCTURED_REPLY, &[]);
    negotiation.contexts("disk", &["base:allocation".to_owned()], true, false, &mut Vec::new());
    assert!(negotiation.contexts_for("disk").allocation);
    answer_to(&mut negotiation, option::SET_META_CONTEXT, &[0]);
    assert!(!negotiation.contexts_for("disk").any());
}

#[test]
fn nothing_that_was_agreed_on_before_tls_is_in_force_after_it() {
    let mut negotiation = Negotiation::new(TlsPolicy::Offered, 3).expect("known flags");
    answer_to(&mut negotiation, option::STRUCTURED_REPLY, &[]);
    negotiation.contexts("disk", &["base:allocation".to_owned()], true, false, &mut Vec::new());
    assert_eq!(answer_to(&mut negotiation, option::STARTTLS, &[]).0, Action::StartTls);
    negotiation.secured();
    assert!(!negotiation.is_structured());
    assert!(!negotiation.contexts_for("disk").any());
    assert_eq!(answer_to(&mut negotiation, option::STARTTLS, &[]).1, answer::INVALID, "TLS begins once");
}

#[test]
fn a_list_of_contexts_knows_namespaces_and_leaves_what_is_in_force() {
    let lists = |queries: &[&str]| {
        let mut negotiation = Negotiation::new(TlsPolicy::Off, 3).expect("known flags");
        let queries: Vec<String> = queries.iter().map(|query| (*query).to_owned()).collect();
        let mut out = Vec::new();
        negotiation.contexts("disk", &queries, false, true, &mut out);
        assert!(!negotiation.contexts_for("disk").any());
        let text = String::from_utf8_lossy(&out).into_owned();
        (text.contains("base:allocation"), text.contains("terrace:epoch"))
    };
    assert_eq!(lists(&[]), (true, true));
    assert_eq!(lists(&["base:"]), (true, false));
    assert_eq!(lists(&["terrace:epoch", "qemu:dirty"]), (false, true));
}

#[test]
fn options_are_framed_or_skipped_or_end_the_session() {
    let head = |length: u32| [&OPTION_MAGIC.to_be_bytes()[..], &7u32.to_be_bytes(), &length.to_be_bytes()].concat();
    assert_eq!(frame(&head(0)), OptionFrame::Whole { option: 7, length: 0 });
    assert_eq!(frame(&head(1)), OptionFrame::Incomplete);
    assert_eq!(frame(&head(0)[..15]), OptionFrame::Incomplete);
    let long = OPTION_BYTES_MAX + 1;
    assert_eq!(frame(&head(long as u32)), OptionFrame::TooLong { option: 7, length: long });
    assert_eq!(frame(&head(u32::MAX)), OptionFrame::Broken);
    assert_eq!(frame(b"NBDMAGICNBDMAGIC"), OptionFrame::Broken);
}

#[test]
fn a_client_refuses_servers_that_make_no_sense() {
    let broken = |bytes: &[u8]| {
        let mut asking = Asking::new(wish("disk", false));
        asking.apply(bytes, &mut Vec::new()).is_err()
    };
    assert!(broken(b"SSH-2.0-x"));
    assert!(broken(&[&greeting()[..16], &[0, 0]].concat()), "not the fixed newstyle");
    let after = |code, kind, data: &[u8]| {
        let mut bytes = greeting().to_vec();
        reply(code, kind, data, &mut bytes);
        bytes
    };
    assert!(broken(&after(option::GO, answer::ACK, &[])), "a reply to another option");
    assert!(broken(&after(option::STRUCTURED_REPLY, answer::INFO, &[])));
    let mut early = Asking::new(wish("disk", true));
    let bytes = [&after(option::STARTTLS, answer::ACK, &[])[..], b"x"].concat();
    assert!(early.apply(&bytes, &mut Vec::new()).is_err(), "bytes before TLS");
}

#[test]
fn a_server_without_go_is_opened_by_its_name() {
    let mut asking = Asking::new(wish("disk", false));
    let mut bytes = greeting().to_vec();
    reply(option::STRUCTURED_REPLY, answer::UNSUPPORTED, &[], &mut bytes);
    reply(option::GO, answer::UNSUPPORTED, &[], &mut bytes);
    bytes.extend_from_slice(&(1u64 << 20).to_be_bytes());
    bytes.extend_from_slice(&5u16.to_be_bytes());
    let (used, progress) = asking.apply(&bytes, &mut Vec::new()).expect("it is understood");
    let Progress::Ready(opened) = progress else { panic!("{progress:?}") };
    assert_eq!((used, opened.facts.bytes, opened.facts.flags, opened.facts.min_block), (bytes.len(), 1 << 20, 5, 512));
    assert!(!opened.structured && !asking.has_block_sizes());
}
