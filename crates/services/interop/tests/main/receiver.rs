//! A system that receives messages and answers as the test specifies.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use hl7::Message;
use hl7::mllp::{Decoder, Event, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::rig::{PATIENCE, until};
use crate::sender::{Stream, framed};

/// The control id of a message.
pub(crate) fn id_of(body: &[u8]) -> String {
    let path = "MSH-10".parse().expect("a path");
    Message::parse(body).expect("a message").text(&path).into_owned()
}

/// An acknowledgement as a receiver writes it.
pub(crate) fn ack(code: &str, id: &str) -> Vec<u8> {
    framed(&format!("MSH|^~\\&|R||||20260101||ACK|r-{id}|P|2.5\rMSA|{code}|{id}\r"))
}

enum Order {
    Write(Vec<u8>),
    Close,
}

/// A message that arrived and waits for its answer.
pub(crate) struct Arrival {
    /// Which connection, counted from 0.
    pub(crate) connection: usize,
    pub(crate) body: Vec<u8>,
    /// One before it on the same connection was not answered yet.
    pub(crate) is_ahead: bool,
    orders: UnboundedSender<Order>,
}

impl Arrival {
    pub(crate) fn id(&self) -> String {
        id_of(&self.body)
    }

    /// Answers with a code.
    pub(crate) fn answer(&self, code: &str) {
        self.write(&ack(code, &self.id()));
    }

    /// Writes bytes unchanged.
    pub(crate) fn write(&self, bytes: &[u8]) {
        // A closed connection accepts no answer; the test checks the consequences.
        let _ = self.orders.send(Order::Write(bytes.to_vec()));
    }

    /// Closes the connection.
    pub(crate) fn close(&self) {
        let _ = self.orders.send(Order::Close);
    }
}

enum Happened {
    /// A connection, and the port that it comes from.
    Opened(usize, u16),
    Arrived(Arrival),
    Closed(usize),
}

/// A receiver whose every answer the test gives.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    happened: UnboundedReceiver<Happened>,
    early: std::collections::VecDeque<Arrival>,
    /// Where connections come from, by number.
    opened: Vec<u16>,
    closed: Vec<usize>,
}

impl Receiver {
    pub(crate) async fn start() -> Receiver {
        Receiver::on(TcpListener::bind("127.0.0.1:0").await.expect("a free port"), None)
    }

    pub(crate) async fn start_tls(acceptor: TlsAcceptor) -> Receiver {
        Receiver::on(TcpListener::bind("127.0.0.1:0").await.expect("a free port"), Some(acceptor))
    }

    fn on(listener: TcpListener, tls: Option<TlsAcceptor>) -> Receiver {
        let address = listener.local_addr().expect("it is bound");
        let (tell, happened) = unbounded_channel();
        tokio::spawn(async move {
            for connection in 0.. {
                let Ok((socket, from)) = listener.accept().await else { return };
                let (tell, tls) = (tell.clone(), tls.clone());
                let _ = tell.send(Happened::Opened(connection, from.port()));
                tokio::spawn(async move {
                    let stream: Option<Box<dyn Stream>> = match tls {
                        None => Some(Box::new(socket)),
                        // The other side may refuse us, as some tests want.
                        Some(acceptor) => acceptor.accept(socket).await.ok().map(|stream| Box::new(stream) as _),
                    };
                    if let Some(stream) = stream {
                        converse(stream, connection, &tell).await;
                    }
                    let _ = tell.send(Happened::Closed(connection));
                });
            }
        });
        Receiver { address, happened, early: std::collections::VecDeque::new(), opened: Vec::new(), closed: Vec::new() }
    }

    /// The next message.
    pub(crate) async fn next(&mut self) -> Arrival {
        loop {
            if let Some(arrival) = self.early.pop_front() {
                return arrival;
            }
            self.happen().await;
        }
    }

    /// The next message, checked for its control id.
    pub(crate) async fn next_is(&mut self, id: &str) -> Arrival {
        let arrival = self.next().await;
        assert_eq!(arrival.id(), id);
        arrival
    }

    /// Waits until the node has closed a connection.
    pub(crate) async fn closed(&mut self, connection: usize) {
        while !self.closed.contains(&connection) {
            self.happen().await;
        }
    }

    /// A message that has arrived already. Whether one has is chance: both must be right for the test.
    pub(crate) fn at_hand(&mut self) -> Option<Arrival> {
        while let Ok(happened) = self.happened.try_recv() {
            self.keep(happened);
        }
        self.early.pop_front()
    }

    /// Control ids of the messages that were not taken with `next`. The node has stopped: waits until all that it ever sent is read.
    pub(crate) async fn rest(&mut self) -> Vec<String> {
        // Connections are accepted in their order: when this one is, all of the node's are.
        let last =
            TcpStream::connect(self.address).await.expect("it listens").local_addr().expect("it is bound").port();
        while self.opened.last() != Some(&last) {
            self.happen().await;
        }
        for connection in 0..self.opened.len() {
            self.closed(connection).await;
        }
        self.early.iter().map(Arrival::id).collect()
    }

    async fn happen(&mut self) {
        let happened = timeout(PATIENCE, self.happened.recv()).await.expect("something in time");
        self.keep(happened.expect("the listener lives"));
    }

    fn keep(&mut self, happened: Happened) {
        match happened {
            Happened::Opened(connection, from) => {
                assert_eq!(connection, self.opened.len(), "in their order");
                self.opened.push(from);
            }
            Happened::Arrived(arrival) => self.early.push_back(arrival),
            Happened::Closed(connection) => self.closed.push(connection),
        }
    }

    /// From now on answers every message with AA.
    pub(crate) fn accepting(mut self) -> Accepting {
        let bodies = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let accepting = Accepting { address: self.address, bodies: Arc::clone(&bodies) };
        tokio::spawn(async move {
            let take = |arrival: Arrival| {
                bodies.lock().expect("nobody panics with it").push(arrival.body.clone());
                arrival.answer("AA");
            };
            self.early.drain(..).for_each(take);
            while let Some(happened) = self.happened.recv().await {
                if let Happened::Arrived(arrival) = happened {
                    take(arrival);
                }
            }
        });
        accepting
    }
}

/// Reads messages and does what the test orders.
async fn converse(mut stream: Box<dyn Stream>, connection: usize, tell: &UnboundedSender<Happened>) {
    let mut decoder = Decoder::new(Limits::default());
    let (give, mut orders) = unbounded_channel();
    let mut unanswered = 0_usize;
    loop {
        for event in decoder.by_ref() {
            let Event::Frame(frame) = event else { panic!("the node sends frames only: {event:?}") };
            let arrival = Arrival { connection, body: frame.to_vec(), is_ahead: unanswered > 0, orders: give.clone() };
            unanswered += 1;
            let _ = tell.send(Happened::Arrived(arrival));
        }
        tokio::select! {
            read = stream.read_buf(decoder.buffer()) => match read {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            },
            order = orders.recv() => match order {
                Some(Order::Write(bytes)) => {
                    unanswered = unanswered.saturating_sub(1);
                    if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
                        return;
                    }
                }
                Some(Order::Close) | None => return,
            },
        }
    }
}

/// A receiver that accepts everything.
pub(crate) struct Accepting {
    pub(crate) address: SocketAddr,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Accepting {
    pub(crate) async fn start() -> Accepting {
        Receiver::start().await.accepting()
    }

    /// Everything received so far.
    pub(crate) fn bodies(&self) -> Vec<Vec<u8>> {
        self.bodies.lock().expect("nobody panics with it").clone()
    }

    /// Control ids of everything received so far.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.bodies().iter().map(|body| id_of(body)).collect()
    }

    /// Waits for so many messages; their control ids.
    pub(crate) async fn received(&self, count: usize) -> Vec<String> {
        until("so many messages arrive", || Some(self.ids()).filter(|ids| ids.len() >= count)).await
    }
}

/// A receiver that is down: its port is in use, but connections get no answer.
pub(crate) struct Down {
    pub(crate) address: SocketAddr,
    socket: TcpSocket,
}

impl Down {
    pub(crate) fn new() -> Down {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        Down { address: socket.local_addr().expect("it is bound"), socket }
    }

    /// Comes up.
    pub(crate) fn up(self) -> Receiver {
        Receiver::on(self.socket.listen(64).expect("it listens"), None)
    }
}
