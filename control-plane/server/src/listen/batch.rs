//! What one connection writes, batch by batch: all that a turn of its task wrote goes out at the end of that turn.
//!
//! An HTTP library writes each answer by itself, and each write wakes whoever reads. Owns: the bytes that wait for the
//! end of a turn, and the turns of a connection that wakes itself. Keeps true: nothing waits beyond its turn but for a
//! peer that does not read; at most [`MOST`] bytes wait; bytes keep their order.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::coop::{has_budget_remaining, unconstrained};

/// Most bytes that wait: then they go out whether the turn has ended or not.
const MOST: usize = 32 * 1024;
/// What a connection without bytes keeps of their memory.
const KEPT: usize = 4 * 1024;
/// How often a connection that woke itself goes on before other tasks have their turn.
const ROUNDS: usize = 4;

/// A connection's stream as the HTTP library sees it, and what sends its batches.
pub(super) fn batched(stream: TcpStream) -> (Stream, Batches) {
    let (read, write) = stream.into_split();
    let waiting = Arc::new(Mutex::new(Waiting { write, bytes: Vec::new(), sent: 0, broken: None }));
    (Stream { read, waiting: Arc::clone(&waiting) }, Batches(waiting))
}

/// The bytes that wait.
struct Waiting {
    write: OwnedWriteHalf,
    bytes: Vec<u8>,
    /// How many of them were sent.
    sent: usize,
    /// Why no more can be.
    broken: Option<io::ErrorKind>,
}

impl Waiting {
    /// Sends what waits.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.bytes.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let written = match ready!(Pin::new(&mut self.write).poll_write(context, rest)) {
                Ok(0) => Err(io::ErrorKind::WriteZero),
                written => written.map_err(|error| error.kind()),
            };
            match written {
                Ok(sent) => self.sent += sent,
                Err(kind) => {
                    self.broken = Some(kind);
                    self.bytes.clear();
                    self.sent = 0;
                }
            }
        }
        if let Some(kind) = self.broken {
            return Poll::Ready(Err(kind.into()));
        }
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Makes room for more, and says for how much.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.broken.is_some() || self.bytes.len() >= MOST {
            ready!(self.poll_send(context))?;
        }
        Poll::Ready(Ok(MOST - self.bytes.len()))
    }
}

/// The stream: what is written waits for the end of the turn.
pub(super) struct Stream {
    read: OwnedReadHalf,
    waiting: Arc<Mutex<Waiting>>,
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut waiting = self.waiting.lock();
        let room = ready!(waiting.poll_room(context))?;
        let taken = bytes.get(..room).unwrap_or(bytes);
        waiting.bytes.extend_from_slice(taken);
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut waiting = self.waiting.lock();
        let room = ready!(waiting.poll_room(context))?;
        let mut left = room;
        for part in parts {
            let taken = part.get(..left).unwrap_or(part);
            waiting.bytes.extend_from_slice(taken);
            left -= taken.len();
        }
        Poll::Ready(Ok(room - left))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// At the end of the turn.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.waiting.lock().broken.map_or(Ok(()), |kind| Err(kind.into())))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut waiting = self.waiting.lock();
        ready!(waiting.poll_send(context))?;
        Pin::new(&mut waiting.write).poll_shutdown(context)
    }
}

/// Sends what a connection has written.
pub(super) struct Batches(Arc<Mutex<Waiting>>);

impl Batches {
    /// Runs `connection`, whose stream this belongs to, and sends what it wrote at the end of each of its turns.
    pub(super) async fn of<C: Future>(self, connection: C) -> C::Output {
        let mut connection = pin!(connection);
        let turn = Arc::new(Turn::default());
        let waker = Waker::from(Arc::clone(&turn));
        std::future::poll_fn(|context| {
            let polled = turn.poll(connection.as_mut(), context, &waker);
            // Where the peer does not read, the task is woken when it does; a connection that has ended does not wait
            // for that. A broken stream tells whoever writes next. A turn that took all of the task's budget sends too.
            let send = std::future::poll_fn(|context| self.0.lock().poll_send(context));
            let _ = pin!(unconstrained(send)).poll(context);
            polled
        })
        .await
    }
}

const IDLE: u8 = 0;
const RUNS: u8 = 1;
const WOKEN: u8 = 2;

/// A turn of a connection's task, and its waker. The answers of requests that ran in their connection's turn wake it;
/// it goes on by itself then, because the scheduler would wake another thread to take it.
#[derive(Default)]
struct Turn {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Turn {
    fn poll<C: Future>(
        &self,
        mut connection: Pin<&mut C>,
        context: &mut Context<'_>,
        waker: &Waker,
    ) -> Poll<C::Output> {
        self.task.register(context.waker());
        for _ in 0..ROUNDS {
            self.state.store(RUNS, Ordering::SeqCst);
            if let Poll::Ready(ended) = connection.as_mut().poll(&mut Context::from_waker(waker)) {
                return Poll::Ready(ended);
            }
            if self.state.swap(IDLE, Ordering::SeqCst) == RUNS {
                return Poll::Pending;
            }
            if !has_budget_remaining() {
                break;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let noted = self
            .state
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |state| (state != IDLE).then_some(WOKEN));
        if noted.is_err() {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    fn nothing_came(stream: &TcpStream) -> bool {
        stream.try_read(&mut [0; 1]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    #[tokio::test]
    async fn what_a_turn_writes_goes_out_at_its_end() {
        let (near, mut far) = pair().await;
        let (mut stream, batches) = batched(near);
        let connection = async move {
            stream.write_all(b"one ").await.unwrap();
            stream.flush().await.unwrap();
            stream.write_all(b"two ").await.unwrap();
            assert!(nothing_came(&far), "it waits for the end of the turn");
            tokio::task::yield_now().await;
            let mut heard = [0; 8];
            far.read_exact(&mut heard).await.unwrap();
            stream.write_all(b"three").await.unwrap();
            (heard, far)
        };
        let (heard, mut far) = batches.of(connection).await;
        assert_eq!(&heard, b"one two ");
        let mut last = [0; 5];
        far.read_exact(&mut last).await.unwrap();
        assert_eq!(&last, b"three", "what the last turn wrote goes out too");
    }

    #[tokio::test]
    async fn a_peer_that_reads_late_gets_every_byte_in_order_and_few_of_them_wait() {
        let (near, mut far) = pair().await;
        let (mut stream, batches) = batched(near);
        let waiting = Arc::clone(&stream.waiting);
        // More than the buffers of any kernel.
        let all: Vec<u8> = (0..48 * 1024 * 1024_usize).map(|at| (at / 7) as u8).collect();
        let sent = all.clone();
        let writing = tokio::spawn(batches.of(async move {
            for part in sent.chunks(10_000) {
                stream.write_all(part).await.unwrap();
            }
            stream.shutdown().await.unwrap();
        }));
        while waiting.lock().bytes.is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(waiting.lock().bytes.len() <= MOST);
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).await.unwrap();
        assert!(heard == all, "{} of {} bytes", heard.len(), all.len());
        writing.await.unwrap();
        assert!(waiting.lock().bytes.capacity() <= KEPT);
    }

    #[tokio::test]
    async fn a_turn_that_takes_all_of_its_tasks_budget_sends_what_it_wrote() {
        let (near, mut far) = pair().await;
        let (mut stream, batches) = batched(near);
        let connection = async move {
            stream.write_all(b"one").await.unwrap();
            while has_budget_remaining() {
                tokio::task::coop::consume_budget().await;
            }
            std::future::pending::<()>().await;
        };
        let mut connection = pin!(batches.of(connection));
        assert!(futures::poll!(connection.as_mut()).is_pending());
        let mut heard = [0; 3];
        let reading = far.read_exact(&mut heard);
        tokio::time::timeout(std::time::Duration::from_secs(10), reading).await.unwrap().unwrap();
        assert_eq!(&heard, b"one");
    }

    #[tokio::test]
    async fn a_connection_learns_at_its_next_turns_that_its_peer_is_gone() {
        let (near, far) = pair().await;
        let (mut stream, batches) = batched(near);
        drop(far);
        let turns = batches.of(async move {
            for turn in 0..1000 {
                if stream.write_all(b"x").await.is_err() || stream.flush().await.is_err() {
                    return turn;
                }
                tokio::task::yield_now().await;
            }
            1000
        });
        assert!(turns.await < 1000);
    }

    #[tokio::test]
    async fn a_connection_that_wakes_itself_goes_on_and_then_lets_others_run() {
        let (near, _far) = pair().await;
        let (_stream, batches) = batched(near);
        let mut polls = 0;
        let connection = std::future::poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            if polls == ROUNDS + 1 { Poll::Ready(()) } else { Poll::Pending }
        });
        let mut connection = std::pin::pin!(batches.of(connection));
        let first = futures::poll!(connection.as_mut());
        assert!(first.is_pending(), "others run after some rounds");
        assert!(futures::poll!(connection.as_mut()).is_ready());
    }
}
