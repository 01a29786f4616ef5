//! Tests with random requests that readers may interpret differently.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tokio::io::AsyncWriteExt;

use super::super::*;
use super::world::{KEY, OK, Service, Worker, head};

/// Parts of a request.
const METHODS: [&str; 6] = ["GET", "POST", "TRACE", "get", "PUT", "OPTIONS"];
const TARGETS: [&str; 8] = [
    "http://HOST/",
    "http://HOST?q",
    "http://HOST//evil.example/",
    "http://evil.example@HOST/",
    "http://HOST\\@evil/",
    "HOST",
    "http://HOST/#f",
    "http://evil.example/",
];
const LINES: [&str; 24] = [
    "x-api-key: mine",
    "X_Api_Key: mine",
    "x-api-key : mine",
    " x-api-key: mine",
    "x-api-key:",
    "Connection: x-api-key",
    "Connection: keep-alive",
    "Content-Length: 0",
    "Content-Length: 40",
    "content-length: 4",
    "Content-Length: 0x4",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding:\tchunked",
    "Transfer-Encoding: identity",
    "Host: evil.example",
    "Expect: 100-continue",
    "Upgrade: websocket",
    "Trailer: x-api-key",
    "\u{b}x: y",
    "x: a\nx-api-key: mine",
    "x: a\rb",
    "no colon",
    "TE: trailers",
];
const BODIES: [&str; 7] = [
    "",
    "0\r\n\r\n",
    "4\r\nabcd\r\n0\r\n\r\n",
    "abcd",
    "0\r\nx-api-key: mine\r\n\r\n",
    "GET http://HOST/second HTTP/1.1\r\nx-api-key: mine\r\n\r\n",
    "ffffffffffffffffff\r\n",
];

/// Builds a request from parts that proxies and services have interpreted differently.
fn odd_request(random: &mut StdRng, port: u16) -> Vec<u8> {
    let mut text = String::new();
    let mut pick = |from: &[&'static str]| *from.choose(random).unwrap();
    text += &format!(
        "{} {} {}\r\n",
        pick(&METHODS),
        pick(&TARGETS),
        pick(&["HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/0.9"])
    );
    for _ in 0..pick(&["", "a", "ab", "abc"]).len() {
        text += pick(&LINES);
        text += pick(&["\r\n", "\r\n", "\r\n", "\n"]);
    }
    text += "\r\n";
    for _ in 0..pick(&["", "a", "ab"]).len() {
        text += pick(&BODIES);
    }
    let mut bytes = text.replace("HOST", &format!("localhost:{port}")).into_bytes();
    if random.random_bool(0.2) {
        let at = random.random_range(0..bytes.len());
        bytes[at] = random.random();
    }
    bytes
}

#[tokio::test]
async fn no_odd_request_moves_the_credential_or_brings_a_second_one() {
    let has_head = |heard: &[u8]| heard.windows(4).any(|end| end == b"\r\n\r\n");
    let mut service = Service::when(false, OK, has_head).await;
    let mut random = StdRng::seed_from_u64(12);
    let mut proved = 0;
    for _ in 0..2_000 {
        let request = odd_request(&mut random, service.port);
        let shown = String::from_utf8_lossy(&request).into_owned();
        let worker = Worker::of(&service);
        let (client, stream) = UnixStream::pair().unwrap();
        let (mut read, mut write) = client.into_split();
        // It is small. The missing part of its body never arrives.
        write.write_all(&request).await.unwrap();
        let write = has_head(&request).then_some(write);
        let carried = tokio::time::timeout(Duration::from_secs(20), worker.proxy.carry(stream)).await;
        assert!(carried.is_ok(), "{shown:?} is never done");
        let mut answer = Vec::new();
        let _ = read.read_to_end(&mut answer).await;
        drop(write);
        assert!(!String::from_utf8_lossy(&answer).contains(KEY), "{shown:?}");
        while let Ok(heard) = service.heard.try_recv() {
            if heard.is_empty() {
                continue;
            }
            proved += 1;
            let lines = head(&heard);
            let is_key = |line: &&String| line.split(':').next().unwrap().replace('_', "-") == "x-api-key";
            let keys: Vec<_> = lines.iter().filter(is_key).collect();
            assert_eq!(keys, [&format!("x-api-key: {KEY}")], "{shown:?}: {heard:?}");
            let hosts = lines.iter().filter(|line| line.starts_with("host:")).count();
            assert!(hosts == 1 && lines.contains(&format!("host: localhost:{}", service.port)), "{heard:?}");
            assert!(is_one(&heard), "{shown:?}: {heard:?}");
        }
    }
    assert!(proved > 100, "the service was asked {proved} times");
}

/// Whether a strict reader finds one request and nothing after it, or no complete one.
fn is_one(heard: &str) -> bool {
    let Some((head, body)) = heard.split_once("\r\n\r\n") else { return false };
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    match (length, head.contains("transfer-encoding: chunked")) {
        (Some(_), true) => false,
        (Some(length), false) => body.len() <= length,
        (None, true) => !body.contains("mine") || !body.contains("0\r\n\r\n"),
        (None, false) => body.is_empty(),
    }
}
