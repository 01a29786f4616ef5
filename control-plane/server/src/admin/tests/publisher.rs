//! An issuer on this machine that sends the bytes that a test wants.

use std::collections::HashMap;
use std::sync::Arc;

use http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(super) const DISCOVERY: &str = "/.well-known/openid-configuration";

/// Response of an issuer at a path.
#[derive(Clone, Debug)]
pub(super) enum Page {
    Json(Value),
    Text(StatusCode, String),
    To(StatusCode, String),
    /// These bytes, and the connection's end.
    Raw(Vec<u8>),
    /// These bytes, and the second ones again and again.
    Endless(Vec<u8>, Vec<u8>),
    /// These bytes, and nothing more, nor an end.
    Never(Vec<u8>),
}

impl Page {
    /// With status 200 and these headers, `\r\n` behind each.
    pub(super) fn of(headers: &str, body: &[u8]) -> Page {
        Page::Raw([format!("HTTP/1.1 200 OK\r\n{headers}\r\n").as_bytes(), body].concat())
    }

    /// A body of these bytes.
    pub(super) fn bytes(body: &[u8]) -> Page {
        Page::of(&format!("content-length: {}\r\n", body.len()), body)
    }

    async fn write(self, stream: &mut TcpStream) -> std::io::Result<()> {
        let whole = |status: StatusCode, headers: &str, body: &str| {
            format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}connection: close\r\n\r\n{body}",
                body.len()
            )
        };
        match self {
            Page::Json(value) => {
                let body = value.to_string();
                stream
                    .write_all(whole(StatusCode::OK, "content-type: application/json\r\n", &body).as_bytes())
                    .await
            }
            Page::Text(status, text) => stream.write_all(whole(status, "", &text).as_bytes()).await,
            Page::To(status, place) => {
                stream.write_all(whole(status, &format!("location: {place}\r\n"), "").as_bytes()).await
            }
            Page::Raw(bytes) => stream.write_all(&bytes).await,
            Page::Endless(head, again) => {
                stream.write_all(&head).await?;
                loop {
                    stream.write_all(&again).await?;
                }
            }
            Page::Never(head) => {
                stream.write_all(&head).await?;
                std::future::pending().await
            }
        }
    }
}

#[derive(Clone, Default)]
struct Shared {
    pages: Arc<Mutex<HashMap<String, Page>>>,
    asked: Arc<Mutex<HashMap<String, usize>>>,
}

/// One that listens until it is dropped.
pub(super) struct Publisher {
    pub(super) origin: String,
    shared: Shared,
    _stop: DropGuard,
}

impl Publisher {
    pub(super) async fn start() -> Publisher {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let shared = Shared::default();
        let stop = CancellationToken::new();
        let (serving, ended) = (shared.clone(), stop.clone());
        tokio::spawn(async move {
            while let Some(Ok((stream, _))) = ended.run_until_cancelled(listener.accept()).await {
                let (shared, ended) = (serving.clone(), ended.clone());
                tokio::spawn(async move { ended.run_until_cancelled(answer(stream, shared)).await });
            }
        });
        Publisher { origin, shared, _stop: stop.drop_guard() }
    }

    pub(super) fn set(&self, path: &str, page: Page) {
        self.shared.pages.lock().insert(path.to_owned(), page);
    }

    pub(super) fn asked(&self, path: &str) -> usize {
        self.shared.asked.lock().get(path).copied().unwrap_or_default()
    }

    /// Requests for anything.
    pub(super) fn asked_in_all(&self) -> usize {
        self.shared.asked.lock().values().sum()
    }

    /// Publishes metadata, and these keys.
    pub(super) fn publish(&self, keys: &[Value]) {
        self.publish_at("", keys);
    }

    /// The same of the issuer below a path.
    pub(super) fn publish_at(&self, path: &str, keys: &[Value]) {
        let iss = format!("{}{path}", self.origin);
        let metadata = json!({ "issuer": iss, "jwks_uri": format!("{iss}/keys") });
        self.set(&format!("{path}{DISCOVERY}"), Page::Json(metadata));
        self.set(&format!("{path}/keys"), Page::Json(json!({ "keys": keys })));
    }

    /// Answers nothing but 503 from now on.
    pub(super) fn go_down(&self) {
        for page in self.shared.pages.lock().values_mut() {
            *page = Page::Text(StatusCode::SERVICE_UNAVAILABLE, String::new());
        }
    }

    pub(super) fn document(&self) -> Value {
        json!({ "iss": self.origin, "orgs": ["acme"], "typ": ["JWT"], "claims": { "groups": "/realm_access/roles" } })
    }
}

async fn answer(mut stream: TcpStream, shared: Shared) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read_buf(&mut head).await {
            Ok(read) if read > 0 => {}
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    *shared.asked.lock().entry(path.clone()).or_default() += 1;
    let page = shared.pages.lock().get(&path).cloned();
    let page = page.unwrap_or_else(|| Page::Text(StatusCode::NOT_FOUND, String::new()));
    // Err: the client has disconnected.
    if page.write(&mut stream).await.is_ok() {
        let _ = stream.shutdown().await;
        // What was sent is lost where something is left unread.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
}
