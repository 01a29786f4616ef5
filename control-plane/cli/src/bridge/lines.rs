//! Standard input and output of the process, one message a line.
//!
//! Each has a thread of its own: a blocking read of a terminal or pipe cannot be cancelled, and the process must be able to
//! exit without it.

use std::io::{BufRead, BufReader, Read, Write, stdin, stdout};
use std::thread;

use tokio::sync::{mpsc, oneshot};

/// Maximum size of a message in bytes, as for the platform.
pub(super) const MAX_MESSAGE: usize = 4 << 20;
/// Maximum number of lines read ahead.
const READ_AHEAD: usize = 4;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Whole(String),
    /// A line above the limit; the rest of it was skipped.
    TooLong,
}

/// Returns the lines of standard input; the channel closes at its end.
pub(super) fn read() -> mpsc::Receiver<Line> {
    let (sender, lines) = mpsc::channel(READ_AHEAD);
    thread::spawn(move || {
        let mut input = BufReader::new(stdin());
        while let Some(line) = next(&mut input, MAX_MESSAGE) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Returns a sender of lines to standard output, and a future that completes when its reader is gone.
pub(super) fn write(room: usize) -> (mpsc::Sender<String>, impl Future<Output = ()>) {
    let (sender, mut lines) = mpsc::channel::<String>(room);
    let (closed, gone) = oneshot::channel::<()>();
    thread::spawn(move || {
        let _closed = closed;
        while let Some(mut line) = lines.blocking_recv() {
            line.push('\n');
            let mut output = stdout().lock();
            if output.write_all(line.as_bytes()).and_then(|()| output.flush()).is_err() {
                return;
            }
        }
    });
    (sender, async move {
        let _ = gone.await;
    })
}

/// Returns the next line that is not empty, or `None` at the end of input.
fn next(input: &mut impl BufRead, max: usize) -> Option<Line> {
    loop {
        let mut line = Vec::new();
        let bound = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
        if input.by_ref().take(bound).read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        if line.last() != Some(&b'\n') && line.len() > max {
            skip_line(input)?;
            return Some(Line::TooLong);
        }
        let text = String::from_utf8_lossy(&line);
        if !text.trim().is_empty() {
            return Some(Line::Whole(text.trim().to_owned()));
        }
    }
}

/// Skips the rest of a line.
fn skip_line(input: &mut impl BufRead) -> Option<()> {
    loop {
        let buffer = input.fill_buf().ok()?;
        if buffer.is_empty() {
            return Some(());
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        input.consume(used);
        if end.is_some() {
            return Some(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_and_too_long_ones_are_passed_over() {
        let whole = |text: &str| Some(Line::Whole(text.to_owned()));
        for capacity in [1, 3, 64] {
            let input = "{}\n\n  \r\n12345678\n123456789\nafter\nlast";
            let mut input = BufReader::with_capacity(capacity, input.as_bytes());
            let mut read = || next(&mut input, 8);
            assert_eq!(read(), whole("{}"));
            assert_eq!(read(), whole("12345678"));
            assert_eq!(read(), Some(Line::TooLong));
            assert_eq!(read(), whole("after"));
            assert_eq!(read(), whole("last"));
            assert_eq!(read(), None);
        }
    }
}
