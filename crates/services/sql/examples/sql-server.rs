//! An SQL server over a store in memory, for trying out clients: `sql-server ADDRESS USER PASSWORD [CERTIFICATE KEY]`.
//! It prints its address and runs until its standard input ends. Everything is gone with it.

use std::sync::Arc;

use device::MemoryShelf;
use sql::wire::{Server, TlsOptions, Verifier, WireOptions};
use sql::{Engine, EngineOptions};
use store::{Options, Places, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, user, password, files @ ..] = words.as_slice() else {
        return Err("usage: sql-server ADDRESS USER PASSWORD [CERTIFICATE KEY]".into());
    };
    let tls = match files {
        [] => None,
        [certificate, key] => Some(TlsOptions { certificate: certificate.into(), key: key.into(), required: false }),
        _ => return Err("a certificate needs its key".into()),
    };
    let shelf = Arc::new(MemoryShelf::new());
    let places = Places { journal: shelf.clone(), images: shelf.clone(), data: shelf };
    let (store, _) = Store::open(places, Options::default())?;
    let engine = Engine::new(store, EngineOptions::default())?;
    let users = [(user.clone(), Verifier::of(password)?)].into();
    let options = WireOptions { listen: address.parse()?, users, tls, ..WireOptions::default() };
    let server = Server::start(engine, options).await?;
    println!("{}", server.address());
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
    server.stop().await;
    Ok(())
}
