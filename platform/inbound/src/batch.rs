//! Batched writes of one connection: everything that one turn of its task writes is sent at the end of that turn.
//!
//! An HTTP library writes each answer separately, and each write wakes the reader. Owns: the bytes that wait for the
//! end of a turn, and the turns of a connection that wakes itself. Keeps true: bytes wait beyond their turn only for a
//! peer that does not read, and for a bounded time; at most [`MOST`] bytes wait; bytes keep their order.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::coop::{has_budget_remaining, unconstrained};
use tokio::time::{Instant, Sleep, sleep_until};

/// Maximum number of waiting bytes; when it is reached they are sent before the turn ends.
const MOST: usize = 32 * 1024;
/// Buffer capacity that a connection without waiting bytes keeps.
const KEPT: usize = 4 * 1024;
/// Maximum number of consecutive turns of a connection that wakes itself, before other tasks run.
const ROUNDS: usize = 4;

/// Splits a socket into the stream that the HTTP library uses and the sender of its batches.
pub(super) fn batched(stream: TcpStream) -> (Stream<OwnedReadHalf, OwnedWriteHalf>, Batches<OwnedWriteHalf>) {
    let (read, write) = stream.into_split();
    batched_halves(read, write)
}

/// Does the same for a stream that is already split.
pub(super) fn batched_halves<R, W>(read: R, write: W) -> (Stream<R, W>, Batches<W>) {
    let waiting = WriteBuffer { write, bytes: Vec::new(), sent: 0, sent_in_all: 0, broken: None };
    let waiting = Arc::new(Mutex::new(waiting));
    (Stream { read, waiting: Arc::clone(&waiting) }, Batches(waiting))
}

/// Bytes that wait to be sent.
struct WriteBuffer<W> {
    write: W,
    bytes: Vec<u8>,
    /// Number of leading bytes already sent.
    sent: usize,
    /// Counter that changes whenever the peer accepts bytes.
    sent_in_all: usize,
    /// Error that made further sending impossible.
    broken: Option<io::ErrorKind>,
}

impl<W: AsyncWrite + Unpin> WriteBuffer<W> {
    /// Sends the waiting bytes.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.bytes.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let written = match ready!(Pin::new(&mut self.write).poll_write(context, rest)) {
                Ok(0) => Err(io::ErrorKind::WriteZero),
                written => written.map_err(|error| error.kind()),
            };
            match written {
                Ok(sent) => {
                    self.sent += sent;
                    self.sent_in_all = self.sent_in_all.wrapping_add(sent);
                }
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
        // TLS may hold bytes that the socket had no space for.
        let flushed = ready!(Pin::new(&mut self.write).poll_flush(context));
        self.broken = flushed.as_ref().err().map(io::Error::kind);
        Poll::Ready(flushed)
    }

    /// Makes room for more bytes and returns how many fit.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.broken.is_some() || self.bytes.len() >= MOST {
            ready!(self.poll_send(context))?;
        }
        Poll::Ready(Ok(MOST - self.bytes.len()))
    }
}

/// Stream whose writes wait for the end of the turn.
pub(super) struct Stream<R, W> {
    read: R,
    waiting: Arc<Mutex<WriteBuffer<W>>>,
}

impl<R: AsyncRead + Unpin, W: Unpin> AsyncRead for Stream<R, W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(context, buffer)
    }
}

impl<R: Unpin, W: AsyncWrite + Unpin> AsyncWrite for Stream<R, W> {
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

    /// Leaves the flush to the end of the turn.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.waiting.lock().broken.map_or(Ok(()), |kind| Err(kind.into())))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut waiting = self.waiting.lock();
        ready!(waiting.poll_send(context))?;
        Pin::new(&mut waiting.write).poll_shutdown(context)
    }
}

/// Sender of the bytes that a connection has written.
pub(super) struct Batches<W>(Arc<Mutex<WriteBuffer<W>>>);

/// Error: the peer read none of the waiting bytes within the time limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReadTimeout;

/// Socket of a connection.
#[derive(Clone)]
pub(super) struct Socket(Arc<Mutex<WriteBuffer<OwnedWriteHalf>>>);

impl Socket {
    /// Limits the kernel's send buffer, so that little is kept for a peer that does not read, and progress of one that
    /// reads slowly is visible early. The kernel doubles the number (socket(7)).
    pub(super) fn limit_send_buffer(&self, bytes: usize) {
        let waiting = self.0.lock();
        if let Err(error) = rustix::net::sockopt::set_socket_send_buffer_size(waiting.write.as_ref(), bytes) {
            tracing::debug!(%error, "send buffer size could not be set");
        }
    }
}

impl Batches<OwnedWriteHalf> {
    pub(super) fn socket(&self) -> Socket {
        Socket(Arc::clone(&self.0))
    }
}

impl<W: AsyncWrite + Unpin> Batches<W> {
    /// Runs `connection`, which writes to this stream, and sends its bytes at the end of each turn. Fails if the peer
    /// reads nothing for `longest` while bytes wait.
    pub(super) async fn of<C: Future>(
        self,
        connection: C,
        longest: Duration,
    ) -> Result<C::Output, ReadTimeout> {
        let mut patience = Patience { longest, until: None, sent: 0 };
        let mut connection = pin!(connection);
        let turn = Arc::new(TaskTurn::default());
        let waker = Waker::from(Arc::clone(&turn));
        std::future::poll_fn(|context| {
            let polled = turn.poll(connection.as_mut(), context, &waker);
            // If the peer does not read, the task is woken when it does; a finished connection does not wait for that.
            // A broken stream reports its error at the next write. A turn that used up the task's budget sends too.
            let send = std::future::poll_fn(|context| self.0.lock().poll_send(context));
            let waits = pin!(unconstrained(send)).poll(context).is_pending();
            if let Poll::Ready(ended) = polled {
                return Poll::Ready(Ok(ended));
            }
            if !waits {
                patience.until = None;
                return Poll::Pending;
            }
            let sent = self.0.lock().sent_in_all;
            patience.poll(sent, context).map(|()| Err(ReadTimeout))
        })
        .await
    }
}

/// Time limit for a peer that reads nothing.
struct Patience {
    longest: Duration,
    until: Option<Pin<Box<Sleep>>>,
    /// Value of the counter when the wait began.
    sent: usize,
}

impl Patience {
    /// Waits for the peer; `sent` is the current counter.
    fn poll(&mut self, sent: usize, context: &mut Context<'_>) -> Poll<()> {
        let is_new = std::mem::replace(&mut self.sent, sent) != sent;
        let until = Instant::now() + self.longest;
        let sleep = self.until.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if is_new {
            sleep.as_mut().reset(until);
        }
        sleep.as_mut().poll(context)
    }
}

const IDLE: u8 = 0;
const RUNS: u8 = 1;
const WOKEN: u8 = 2;

/// One turn of a connection's task, and its waker. Answers of requests that ran in their connection's turn wake it; it
/// then continues by itself, because the scheduler would wake another thread to run it.
#[derive(Default)]
struct TaskTurn {
    state: AtomicU8,
    task: AtomicWaker,
}

impl TaskTurn {
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

impl Wake for TaskTurn {
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

    /// Time limit against a hanging test.
    const LONG: Duration = Duration::from_secs(60);

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
        let (heard, mut far) = batches.of(connection, LONG).await.unwrap();
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
        // More than the buffers of any kernel hold.
        let all: Vec<u8> = (0..48 * 1024 * 1024_usize).map(|at| (at / 7) as u8).collect();
        let sent = all.clone();
        let writing = tokio::spawn(batches.of(
            async move {
                for part in sent.chunks(10_000) {
                    stream.write_all(part).await.unwrap();
                }
                stream.shutdown().await.unwrap();
            },
            LONG,
        ));
        while waiting.lock().bytes.is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(waiting.lock().bytes.len() <= MOST);
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).await.unwrap();
        assert!(heard == all, "{} of {} bytes", heard.len(), all.len());
        writing.await.unwrap().unwrap();
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
        let mut connection = pin!(batches.of(connection, LONG));
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
        let turns = batches.of(
            async move {
                for turn in 0..1000 {
                    if stream.write_all(b"x").await.is_err() || stream.flush().await.is_err() {
                        return turn;
                    }
                    tokio::task::yield_now().await;
                }
                1000
            },
            LONG,
        );
        assert!(turns.await.unwrap() < 1000);
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
        let mut connection = std::pin::pin!(batches.of(connection, LONG));
        let first = futures::poll!(connection.as_mut());
        assert!(first.is_pending(), "others run after some rounds");
        assert!(futures::poll!(connection.as_mut()).is_ready());
    }

    #[tokio::test]
    async fn a_peer_that_reads_nothing_is_given_up_and_one_that_reads_slowly_is_not() {
        let longest = Duration::from_secs(2);
        let endless = |mut stream: Stream<OwnedReadHalf, OwnedWriteHalf>| async move {
            loop {
                stream.write_all(&[b'x'; 8 << 10]).await.unwrap();
            }
        };
        let (near, _silent) = pair().await;
        let (stream, batches) = batched(near);
        batches.socket().limit_send_buffer(16 << 10);
        let (other, mut slow) = pair().await;
        let (others, other_batches) = batched(other);
        other_batches.socket().limit_send_buffer(16 << 10);
        let mut kept = tokio::spawn(other_batches.of(endless(others), longest));
        let reads = tokio::spawn(async move {
            let mut part = [0; 16 << 10];
            while slow.read(&mut part).await.is_ok_and(|read| read > 0) {
                tokio::time::sleep(longest / 100).await;
            }
        });
        let given_up = tokio::time::timeout(LONG, batches.of(endless(stream), longest)).await;
        assert_eq!(given_up.unwrap(), Err::<(), _>(ReadTimeout));
        assert!(futures::poll!(&mut kept).is_pending());
        kept.abort();
        reads.abort();
    }
}
