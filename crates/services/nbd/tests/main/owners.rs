//! Epochs as the client sees them: an owner that is no longer one learns so and writes nothing.

use std::sync::Arc;
use std::time::Duration;

use device::{Device, DeviceError};
use nbd::{EpochGate, Export, NbdDevice, NbdError, NbdUri};
use parking_lot::Mutex;

use crate::rig::{Probe, memory, until};
use crate::using::{BLOCK, Restartable, quick};

/// Keeps an epoch in memory, or fails to.
#[derive(Debug, Default)]
struct Keeper(Mutex<(u64, bool)>);

impl EpochGate for Keeper {
    fn current(&self) -> u64 {
        self.0.lock().0
    }

    fn raise(&self, epoch: u64) -> Result<(), String> {
        let mut state = self.0.lock();
        if state.1 {
            return Err("the disk is full".to_owned());
        }
        state.0 = epoch;
        Ok(())
    }
}

fn export(keeper: &Arc<Keeper>, inner: &Arc<dyn Device>) -> Export {
    Export { epochs: Some(Arc::clone(keeper) as _), ..Export::new("vol/b", Arc::clone(inner)) }
}

fn own(server: &Restartable, epoch: u64) -> Result<Arc<NbdDevice>, NbdError> {
    let mut options = quick(NbdUri::unix(&server.socket, "vol/b"));
    (options.epoch, options.reconnect_for) = (Some(epoch), Duration::from_secs(8));
    NbdDevice::connect(options)
}

#[test]
fn the_older_of_two_owners_is_refused_at_once_and_its_writes_reach_nothing() {
    let (keeper, inner) = (Arc::new(Keeper::default()), memory(1 << 20));
    let server = Restartable::new(export(&keeper, &inner));
    let old = own(&server, 5).expect("opens");
    assert!(old.is_fenced());
    assert_eq!(keeper.current(), 5);
    old.write(0, &[1; BLOCK]).expect("write");
    let new = own(&server, 6).expect("opens");
    new.write(0, &[2; BLOCK]).expect("write");
    let error = old.write(0, &[3; BLOCK]).expect_err("its epoch is over");
    assert!(error.to_string().contains("epoch 5 is over: it is 6") || matches!(error, DeviceError::Poisoned { .. }));
    let status = old.status();
    assert!(status.superseded && status.poisoned.is_some_and(|why| why.contains("epoch 5")), "{:?}", old.status());
    assert!(matches!(old.flush(), Err(DeviceError::Poisoned { .. })));
    let mut back = [0; BLOCK];
    new.read(0, &mut back).expect("read");
    assert_eq!(back, [2; BLOCK]);
    assert_eq!(server.sessions(), 1);
    match own(&server, 5) {
        Err(NbdError::Superseded { epoch: 5, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(matches!(old.raise(7), Err(NbdError::Ended)), "a device that is given up stays so");
}

#[test]
fn an_owner_raises_its_epoch_and_goes_on() {
    let (keeper, inner) = (Arc::new(Keeper::default()), memory(1 << 20));
    let mut server = Restartable::new(export(&keeper, &inner));
    let device = own(&server, 5).expect("opens");
    device.write(0, &[1; BLOCK]).expect("write");
    device.raise(9).expect("raised");
    assert_eq!((keeper.current(), device.status().epoch, device.is_fenced()), (9, Some(9), true));
    device.raise(9).expect("it is in force");
    assert!(matches!(device.raise(8), Err(NbdError::Superseded { epoch: 8, .. })));
    device.write(4096, &[2; BLOCK]).expect("write");
    // After a restart of the server it comes back under the epoch that it has now.
    server.stop();
    server.start(export(&keeper, &inner));
    device.flush().expect("flush");
    let mut back = [0; 2 * BLOCK];
    device.read(0, &mut back).expect("read");
    assert_eq!(back[..], [[1; BLOCK], [2; BLOCK]].concat());
    // While requests are in flight it is raised too, and none is lost.
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u64)
            .map(|writer| {
                let device = &device;
                scope.spawn(move || {
                    (0..200).for_each(|turn| device.write((writer + 2) * 4096, &[turn; BLOCK]).expect("write"))
                })
            })
            .collect();
        (10..20).for_each(|epoch| device.raise(epoch).expect("raised"));
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
    });
    assert_eq!(keeper.current(), 19);
}

#[test]
fn an_epoch_that_the_server_cannot_keep_changes_nothing() {
    let (keeper, inner) = (Arc::new(Keeper::default()), memory(1 << 20));
    let server = Restartable::new(export(&keeper, &inner));
    let device = own(&server, 5).expect("opens");
    keeper.0.lock().1 = true;
    let error = device.raise(6).expect_err("the server cannot");
    assert!(matches!(&error, NbdError::Refused { .. }) && error.to_string().contains("the disk is full"), "{error}");
    device.write(0, &[1; BLOCK]).expect("it goes on under its epoch");
    assert_eq!(device.status().epoch, Some(5));
    keeper.0.lock().1 = false;
    device.raise(7).expect("raised");
}

#[test]
fn an_owner_that_was_superseded_while_it_was_away_never_comes_back() {
    let (keeper, inner) = (Arc::new(Keeper::default()), memory(1 << 20));
    let mut server = Restartable::new(export(&keeper, &inner));
    let old = own(&server, 5).expect("opens");
    old.write(0, &[1; BLOCK]).expect("write");
    server.stop();
    until("the loss is noticed", || !old.status().connected);
    keeper.0.lock().0 = 6;
    server.start(export(&keeper, &inner));
    until("it is told", || old.status().superseded);
    assert!(matches!(old.write(0, &[2; BLOCK]), Err(DeviceError::Poisoned { .. })));
    let mut bytes = [0; BLOCK];
    inner.read(0, &mut bytes).expect("read");
    assert_eq!(bytes, [1; BLOCK]);
}

#[test]
fn only_a_server_that_confirms_epochs_fences() {
    let server = Restartable::new(Export::new("plain", memory(1 << 20)));
    let device = NbdDevice::connect(quick(NbdUri::unix(&server.socket, "plain"))).expect("opens");
    assert!(!device.is_fenced());
    assert!(device.raise(5).is_err(), "the server knows no such name");
    device.write(0, &[1; BLOCK]).expect("it goes on as before");
    // A name with an epoch is the epoch; two of them are a mistake.
    let (keeper, inner) = (Arc::new(Keeper::default()), memory(1 << 20));
    let server = Restartable::new(export(&keeper, &inner));
    let mut options = quick(NbdUri::unix(&server.socket, "vol/b@41"));
    let device = NbdDevice::connect(options.clone()).expect("opens");
    assert_eq!((device.status().epoch, device.is_fenced()), (Some(41), true));
    options.epoch = Some(42);
    assert!(matches!(NbdDevice::connect(options), Err(NbdError::Address { .. })));
    // A server that takes any name, and knows nothing of epochs.
    let server =
        crate::scripted::Scripted::new(crate::scripted::Offer::default(), |_, _, _| crate::scripted::Twist::Obey);
    let device = NbdDevice::connect(quick(NbdUri::unix(&server.socket, "vol/b@41"))).expect("opens");
    assert!(!device.is_fenced());
    assert!(matches!(device.raise(42), Err(NbdError::Unfenced { .. })));
    device.write(0, &[1; BLOCK]).expect("write");
}

/// An owner gives a device up while a request is held up on the way, and opens the export again under the same epoch.
#[test]
fn what_a_device_that_was_given_up_has_sent_does_not_come_behind_the_next_one_of_the_same_client() {
    let (keeper, probe) = (Arc::new(Keeper::default()), Probe::new(1 << 20));
    let inner: Arc<dyn Device> = probe.clone();
    let server = Restartable::new(export(&keeper, &inner));
    let open = || {
        let mut options = quick(NbdUri::unix(&server.socket, "vol/b"));
        (options.epoch, options.client) = (Some(5), Some(77));
        (options.request_timeout, options.reconnect_for) = (Duration::from_millis(200), Duration::from_millis(200));
        NbdDevice::connect(options)
    };
    let first = open().expect("opens");
    probe.hold();
    assert!(first.write(0, &[1; BLOCK]).is_err(), "it is given up");
    drop(first);
    probe.wait_for(1);
    let second = std::thread::scope(|scope| {
        let opening = scope.spawn(open);
        std::thread::sleep(Duration::from_millis(500));
        assert!(!opening.is_finished(), "the request of the first one is in the device");
        probe.release();
        opening.join().expect("no panic").expect("opens")
    });
    second.write(0, &[2; BLOCK]).expect("write");
    let mut bytes = [0; BLOCK];
    inner.read(0, &mut bytes).expect("read");
    assert_eq!(bytes, [2; BLOCK]);
}
