//! Download of an object's bytes from the store.
//!
//! Keeps true: the wait for bytes is bounded, by some seconds without any and by a total that depends on the object's
//! size, so that a store that sends a byte now and then blocks nobody. Time that the reader spends on received bytes
//! does not count.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use tokio::time::{Instant, timeout};

use super::client::{S3Fault, request_fault, within};

/// Maximum time without bytes.
const SILENCE: Duration = Duration::from_secs(10);

pub(super) struct Download {
    answer: Response,
    /// Remaining time to wait for bytes.
    left: Duration,
}

impl Download {
    /// Starts the download of `size` bytes.
    pub(super) fn new(answer: Response, size: u64) -> Download {
        Download { answer, left: within(size) }
    }

    /// Returns the next bytes; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, S3Fault> {
        let begun = Instant::now();
        let piece = timeout(SILENCE.min(self.left), self.answer.chunk()).await;
        self.left = self.left.saturating_sub(begun.elapsed());
        match piece {
            Ok(piece) => piece.map_err(request_fault),
            Err(_) if self.left.is_zero() => Err(S3Fault::Silent("its bytes arrive too slowly".into())),
            Err(_) => Err(S3Fault::Silent(format!("no bytes for {} s", SILENCE.as_secs()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Returns a response of `size` bytes, one every `pace`.
    async fn dripping(size: u64, pace: Duration) -> Response {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            assert!(client.read(&mut request).await.unwrap() > 0);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n");
            client.write_all(head.as_bytes()).await.unwrap();
            for _ in 0..size {
                tokio::time::sleep(pace).await;
                // The reader has disconnected.
                if client.write_all(b"x").await.is_err() {
                    return;
                }
            }
        });
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        client.get(format!("http://{address}/")).send().await.unwrap()
    }

    async fn read(reading: &mut Download) -> Result<usize, S3Fault> {
        let mut bytes = 0;
        while let Some(piece) = reading.next().await? {
            bytes += piece.len();
        }
        Ok(bytes)
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_drips_holds_nobody_for_longer_than_the_size_allows() {
        let mut reading = Download::new(dripping(1_000, Duration::from_secs(1)).await, 1_000);
        let begun = Instant::now();
        let said = read(&mut reading).await.unwrap_err().to_string();
        assert!(said.contains("too slowly"), "{said}");
        assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
        let mut reading = Download::new(dripping(9, Duration::from_secs(1)).await, 9);
        assert_eq!(read(&mut reading).await.unwrap(), 9, "as fast as must be");
    }
}
