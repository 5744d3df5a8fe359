//! A system that receives messages and answers as the test says.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use hl7::Message;
use hl7::mllp::{Decoder, Event, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
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

    /// Writes bytes as they are.
    pub(crate) fn write(&self, bytes: &[u8]) {
        // A connection that is gone takes no answer; what follows from that is what the test looks at.
        let _ = self.orders.send(Order::Write(bytes.to_vec()));
    }

    /// Closes the connection.
    pub(crate) fn close(&self) {
        let _ = self.orders.send(Order::Close);
    }
}

enum Happened {
    Arrived(Arrival),
    Closed(usize),
}

/// A receiver whose every answer the test gives.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    happened: UnboundedReceiver<Happened>,
    early: std::collections::VecDeque<Arrival>,
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
                let Ok((socket, _)) = listener.accept().await else { return };
                let (tell, tls) = (tell.clone(), tls.clone());
                tokio::spawn(async move {
                    let stream: Box<dyn Stream> = match tls {
                        None => Box::new(socket),
                        Some(acceptor) => match acceptor.accept(socket).await {
                            Ok(stream) => Box::new(stream),
                            // The other side refused us, as some tests want.
                            Err(_) => return,
                        },
                    };
                    converse(stream, connection, &tell).await;
                    let _ = tell.send(Happened::Closed(connection));
                });
            }
        });
        Receiver { address, happened, early: std::collections::VecDeque::new(), closed: Vec::new() }
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

    /// Whether no message has arrived that was not taken with `next`.
    pub(crate) fn is_idle(&mut self) -> bool {
        while let Ok(happened) = self.happened.try_recv() {
            self.keep(happened);
        }
        self.early.is_empty()
    }

    async fn happen(&mut self) {
        let happened = timeout(PATIENCE, self.happened.recv()).await.expect("something in time");
        self.keep(happened.expect("the listener lives"));
    }

    fn keep(&mut self, happened: Happened) {
        match happened {
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
    loop {
        for event in decoder.by_ref() {
            let Event::Frame(frame) = event else { panic!("the node sends frames only: {event:?}") };
            let arrival = Arrival { connection, body: frame.to_vec(), orders: give.clone() };
            let _ = tell.send(Happened::Arrived(arrival));
        }
        tokio::select! {
            read = stream.read_buf(decoder.buffer()) => match read {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            },
            order = orders.recv() => match order {
                Some(Order::Write(bytes)) => {
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

/// A receiver that is down: its port is taken, and nobody answers there.
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
