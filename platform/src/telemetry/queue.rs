//! Log lines on their way to standard error: a bounded queue and the thread that drains it.
//!
//! Keeps true: logging never waits for the reader of standard error; at most `MAX_BYTES` wait, and dropped lines are
//! counted and reported once there is room again; lines logged before the end are written if they are read within
//! `FLUSH_WITHIN`.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Maximum size of unread lines: some seconds of a busy process.
const MAX_BYTES: usize = 4 << 20;
/// Maximum time that the end of the process waits for a reader of standard error.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub(super) struct LogQueue(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    news: Condvar,
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    /// Number of lines dropped since the last report.
    dropped: u64,
    /// Whether no more lines will be added.
    closed: bool,
    /// Whether everything is written.
    done: bool,
}

/// Guard that writes the queued lines when it is dropped. Later lines are lost.
#[derive(Debug)]
#[must_use = "the log ends when this is dropped"]
pub struct Flush(LogQueue);

/// Creates a queue whose thread writes to `out`.
pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<(LogQueue, Flush)> {
    let queue = LogQueue(Arc::default());
    let own = queue.clone();
    thread::Builder::new().name("log".to_owned()).spawn(move || own.write_to(out))?;
    let flush = Flush(queue.clone());
    Ok((queue, flush))
}

impl LogQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held; even if something did, the lines would still be whole.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        if state.waiting.len() + line.len() > MAX_BYTES {
            state.dropped += 1;
            return;
        }
        state.waiting.extend_from_slice(line);
        self.0.news.notify_one();
    }

    fn write_to(&self, mut out: impl Write) {
        loop {
            let mut state = self.state();
            while state.waiting.is_empty() && !state.closed {
                state = self.0.news.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.waiting.is_empty() {
                state.done = true;
                self.0.done.notify_all();
                return;
            }
            let lines = std::mem::take(&mut state.waiting);
            let dropped = std::mem::take(&mut state.dropped);
            drop(state);
            // Err: nobody reads the log any more, and there is nowhere to report it.
            let _ = out.write_all(&lines);
            if dropped > 0 {
                tracing::warn!(
                    dropped,
                    "log lines were dropped because standard error is read too slowly; read it faster or log less"
                );
            }
        }
    }
}

impl Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogQueue {
    type Writer = LogQueue;

    fn make_writer(&self) -> LogQueue {
        self.clone()
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.closed = true;
        self.0.0.news.notify_one();
        let done = &self.0.0.done;
        // Err or time-out: the lines are lost; the process must not wait longer.
        let _ = done.wait_timeout_while(state, FLUSH_WITHIN, |state| !state.done);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// Writer that accepts lines only when they are read.
    struct Pipe(SyncSender<Vec<u8>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn pipe() -> (Pipe, Receiver<Vec<u8>>) {
        let (sender, receiver) = sync_channel(0);
        (Pipe(sender), receiver)
    }

    #[test]
    fn a_log_that_nobody_reads_holds_up_nobody_and_is_bounded() {
        let (pipe, reader) = pipe();
        let (queue, flush) = start(pipe).unwrap();
        let line = vec![b'x'; 1 << 10];
        // The thread starts a new count with each batch that it takes: it holds the first one, which is not read,
        // before the queue is filled.
        queue.push(&line);
        while !queue.state().waiting.is_empty() {
            thread::yield_now();
        }
        // More than fits: returns although nothing is read.
        for _ in 0..2 * MAX_BYTES / line.len() {
            queue.push(&line);
        }
        assert!(queue.state().dropped > 0);
        assert!(queue.state().waiting.len() <= MAX_BYTES);
        drop(reader);
        drop(flush);
    }

    #[test]
    fn what_was_logged_before_the_end_is_written() {
        let (pipe, reader) = pipe();
        let (queue, flush) = start(pipe).unwrap();
        let reading = thread::spawn(move || reader.iter().flatten().collect::<Vec<u8>>());
        for number in 0..100 {
            queue.push(format!("{number}\n").as_bytes());
        }
        drop(flush);
        drop(queue);
        let text = String::from_utf8(reading.join().unwrap()).unwrap();
        assert_eq!(text.lines().count(), 100);
        assert!(text.ends_with("99\n"));
    }
}
