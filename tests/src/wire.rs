//! The recorder on the wire: a tap that passes everything on, and one record of every message of MCP and A2A that passed any tap.
//!
//! Each message is held against the official definitions: of MCP the JSON Schema of its revision, of A2A the protocol buffers
//! and the JSON Schema of its version. Faults are: whatever the platform or an
//! upstream sends that does not fit, and whatever a client that names itself (`User-Agent`) sends that does not fit and is
//! not refused. A suite may be wrong on purpose; then it must hear an error. Requests that tests write by hand have no
//! name: only their answers are judged.
//!
//! Keeps true: no message is changed or held back; what is recorded of it is recorded before it is passed on, so that who
//! has an answer finds it in the record.

mod a2a;
mod connection;
mod definitions;
mod http2;
mod link;
mod reader;
mod record;
mod schema;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Result;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use self::connection::Connection;
pub use self::link::Link;
pub use self::record::{Record, Verdict};

/// How long a client whose server has closed may go on sending.
const DRAIN: Duration = Duration::from_secs(5);
/// Bytes read at a time.
const CHUNK: usize = 16 << 10;

/// One for a test run: what it says is judged at the end of it.
static RECORD: OnceLock<Arc<Record>> = OnceLock::new();

/// From now on every stack stands behind a tap.
pub fn start_recording() -> Result<Arc<Record>> {
    let record = Arc::new(Record::new()?);
    Ok(RECORD.get_or_init(|| record).clone())
}

/// The record of this run, if there is one.
pub fn recording() -> Option<Arc<Record>> {
    RECORD.get().cloned()
}

/// A running tap; it ends when dropped.
pub struct Tap {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Tap {
    /// Listens on a port of its own and passes on to `target`.
    pub async fn start(target: SocketAddr, link: Link, record: Arc<Record>) -> Result<Tap> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => match accepted {
                        Ok((client, _)) => {
                            connections.spawn(carry(client, target, link, record.clone()));
                        }
                        Err(_) => return,
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Tap { address, task })
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Shared = Arc<Mutex<Connection>>;

async fn carry(client: TcpStream, target: SocketAddr, link: Link, record: Arc<Record>) {
    // A server that is not there is one that closes.
    let Ok(server) = TcpStream::connect(target).await else { return };
    for stream in [&client, &server] {
        let _ = stream.set_nodelay(true);
    }
    if http2::is_spoken(&client, &server).await {
        return http2::carry(client, server, link, record).await;
    }
    let connection = Arc::new(Mutex::new(Connection::new(link, record)));
    let (client_reads, client_writes) = client.into_split();
    let (server_reads, server_writes) = server.into_split();
    let mut upwards = tokio::spawn(up(client_reads, server_writes, connection.clone()));
    down(server_reads, client_writes, &connection).await;
    // A client that is still sending would lose the answer if its connection were reset now.
    if timeout(DRAIN, &mut upwards).await.is_err() {
        upwards.abort();
    }
    connection.lock().closed();
}

async fn up(mut client: OwnedReadHalf, mut server: OwnedWriteHalf, connection: Shared) {
    let mut chunk = vec![0; CHUNK];
    let mut open = true;
    while let Ok(length @ 1..) = client.read(&mut chunk).await {
        let bytes = chunk.get(..length).unwrap_or_default();
        connection.lock().sent(bytes);
        // What a server does not take any more is read all the same.
        open = open && server.write_all(bytes).await.is_ok();
    }
    let _ = server.shutdown().await;
}

async fn down(mut server: OwnedReadHalf, mut client: OwnedWriteHalf, connection: &Shared) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(length @ 1..) = server.read(&mut chunk).await {
        let bytes = chunk.get(..length).unwrap_or_default();
        connection.lock().received(bytes);
        if client.write_all(bytes).await.is_err() {
            return;
        }
    }
    let _ = client.shutdown().await;
}
